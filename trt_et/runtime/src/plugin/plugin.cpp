#include "plugin.h"

#include <executorch/runtime/core/device_allocator.h>
#include <executorch/runtime/platform/log.h>
#include <executorch/runtime/platform/runtime.h>

#include "backend.h"
#include "cuda/device_allocator.h"

namespace trt_et {
namespace {

using executorch::runtime::Error;
using executorch::runtime::etensor::DeviceType;

// Another CUDA allocator (of ExecuTorch's own CUDA backend) does: its memory is CUDA memory too.
// Registering a second one would end the process.
void register_allocator(Registration& done) {
  if (executorch::runtime::get_device_allocator(DeviceType::CUDA) == nullptr) {
    executorch::runtime::register_device_allocator(&cuda_allocator());
    done.allocator = true;
  } else {
    ET_LOG(Info, "TensorRTBackend: a CUDA allocator is registered already, and is used");
  }
}

void register_backend(Registration& done) {
  if (executorch::runtime::get_backend_class(kBackendName) != nullptr) {
    done.problem = "another backend is registered under the name TensorRTBackend";
  } else if (executorch::runtime::register_backend({kBackendName, &backend()}) != Error::Ok) {
    done.problem = "ExecuTorch's table of backends is full";
  } else {
    done.backend = true;
    return;
  }
  ET_LOG(Error, "TensorRTBackend: not registered: %s", done.problem);
}

Registration register_all() {
  // The log needs the platform layer, and this runs before main().
  executorch::runtime::runtime_init();
  Registration done;
  register_backend(done);
  if (done.backend) register_allocator(done);
  return done;
}

const Registration g_registration = register_all();

}  // namespace

const Registration& registration() { return g_registration; }

}  // namespace trt_et
