#include "plugin.h"

#include <dlfcn.h>
#include <executorch/runtime/core/device_allocator.h>
#include <executorch/runtime/platform/runtime.h>

#include <algorithm>
#include <iterator>
#include <mutex>

#include "common/environment.h"
#include "common/installed.h"
#include "common/log.h"
#include "cuda/device_allocator.h"
#include "cuda/streams.h"
#include "engine/options.h"
#include "ops/batched_nms.h"
#include "trt_et/runtime.h"

// CudaAllocator::instance() of ExecuTorch's CUDA backend; null unless this program or library
// contains that backend.
extern "C" __attribute__((weak)) void trt_et_cuda_allocator_of_executorch(void) __asm__(
    "_ZN10executorch8backends4cuda13CudaAllocator8instanceEv");

namespace trt_et {
namespace {

using executorch::runtime::Error;
using executorch::runtime::etensor::DeviceType;

void register_backend(Registration& done) {
  if (executorch::runtime::get_backend_class(TRT_ET_BACKEND_NAME) != nullptr) {
    done.problem = "another backend is registered under the name " TRT_ET_BACKEND_NAME;
  } else if (executorch::runtime::register_backend({TRT_ET_BACKEND_NAME, &backend()}) !=
             Error::Ok) {
    done.problem = "ExecuTorch's table of backends is full";
  } else {
    done.backend = true;
    return;
  }
  log(LogLevel::error, "TensorRTBackend: not registered: %s", done.problem);
}

// ExecuTorch's CUDA libraries register an allocator, and it ends the process at a second one. Those
// that the program links are loaded by now, and their static initializers may come after ours.
constexpr const char* kCudaExtension = "libexecutorch_extension_cuda.so";
bool another_allocator_comes() {
  constexpr const char* kLibraries[] = {kCudaExtension, "libexecutorch_backend_cuda.so"};
  return trt_et_cuda_allocator_of_executorch != nullptr ||
         std::any_of(std::begin(kLibraries), std::end(kLibraries), [](const char* name) {
           void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
           return library != nullptr && dlclose(library) == 0;
         });
}

Registration register_all() {
  // The log needs the platform layer, and this runs before main().
  executorch::runtime::runtime_init();
  // Neither the environment nor the current folder may have changed yet.
  (void)environment();
  note_folders();
  keep_reasons_of_executorch();
  register_batched_nms();
  Registration done;
  register_backend(done);
  if (!done.backend) return done;
  set_device_redirection(redirected_device);
  find_caller_streams(kCudaExtension);
  if (another_allocator_comes()) {
    log(LogLevel::debug, "TensorRTBackend: the CUDA allocator of another library is used");
  } else {
    register_allocator();
  }
  return done;
}

const Registration g_registration = register_all();

}  // namespace

const Registration& registration() { return g_registration; }

bool register_allocator() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  // Another CUDA allocator does: its memory is CUDA memory too.
  if (executorch::runtime::get_device_allocator(DeviceType::CUDA) == nullptr) {
    executorch::runtime::register_device_allocator(&cuda_allocator());
  }
  return cuda_allocator_is_registered();
}

}  // namespace trt_et
