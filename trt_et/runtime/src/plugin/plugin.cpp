#include "plugin.h"

#include <dlfcn.h>
#include <executorch/runtime/core/device_allocator.h>
#include <executorch/runtime/platform/runtime.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <vector>

#include "common/immortal.h"
#include "common/log.h"
#include "common/process.h"
#include "cuda/device_allocator.h"
#include "cuda/streams.h"
#include "delegate/delegate.h"
#include "delegate/event_tracing.h"
#include "engine/build_progress.h"
#include "engine/options.h"
#include "ops/batched_nms.h"
#include "trt_et/runtime.h"

// CudaAllocator::instance() of ExecuTorch's CUDA backend; null unless this program or library
// contains that backend.
extern "C" __attribute__((weak)) void trt_et_cuda_allocator_of_executorch(void) __asm__(
    "_ZN10executorch8backends4cuda13CudaAllocator8instanceEv");

namespace trt_et {
namespace {

using namespace executorch::runtime;
using executorch::runtime::etensor::DeviceType;

class TensorRTBackend final : public BackendInterface {
 public:
  // Without a GPU too, if nobody has chosen a mode: reference engines then run on simulated GPUs.
  bool is_available() const override { return has_gpu(cuda::access_or_simulate); }

  Result<DelegateHandle*> init(BackendInitContext& context, FreeableBuffer* processed,
                               ArrayRef<CompileSpec> compile_specs) const override {
    clear_last_error();
    std::unique_ptr<Delegate> delegate;
    const TraceScope scope(context.event_tracer());
    const TraceEvent event("load");
    const Error error = enter([&]() -> Status {
      TRT_ET_TRY(cuda::check_not_forked());
      LoadOptions options;
      TRT_ET_TRY(read_options(context, compile_specs, &options));
      // Our allocator has cleared its memory; ExecuTorch's own leaves in it what was there.
      if (cuda_allocator_is_registered()) options.state_inputs.clear();
      return Delegate::create(processed, context.get_named_data_map(), options, &delegate);
    });
    // With an error of ExecuTorch's bindings, Python would not raise what the handler has raised.
    if (error != Error::Ok && is_interrupted()) return nullptr;
    if (error != Error::Ok) return error;
    return delegate.release();
  }

  Error execute(BackendExecutionContext& context, DelegateHandle* handle,
                Span<EValue*> args) const override {
    clear_last_error();
    if (handle == nullptr) return Error::DelegateInvalidHandle;
    const TraceScope scope(context.event_tracer());
    return enter([&]() -> Status {
      TRT_ET_TRY(cuda::check_not_forked());
      return static_cast<Delegate*>(handle)->execute(args);
    });
  }

  // The options of options.h.
  Error set_option(BackendOptionContext&, const Span<BackendOption>& given) override {
    clear_last_error();
    return enter([&] { return set_options({given.data(), given.size()}); });
  }

  // A program's static objects may go after CUDA and TensorRT have: what they own is left to the
  // end of the process then.
  void destroy(DelegateHandle* handle) const override {
    if (cuda::is_forked()) return;
    static std::mutex mutex;
    // Reachable, so that it counts as no leak.
    static auto* left = new std::vector<DelegateHandle*>;
    (void)enter([&] {
      if (cuda::is_ending()) {
        const std::lock_guard<std::mutex> lock(mutex);
        left->push_back(handle);
      } else {
        delete static_cast<Delegate*>(handle);
      }
      return Status{};
    });
  }
};

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
  note_process();
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

bool has_gpu(cuda::Access access) {
  clear_last_error();
  return enter([&] {
           cuda::Api* api = nullptr;
           int count = 0;
           Status status = cuda::usable_devices(&api, &count, access);
           if (status.error != Error::NotFound) return status;
           return fail(status.error, "not available: %s%s", status.text.c_str(),
                       cuda::remedy().c_str());
         }) == Error::Ok;
}

executorch::runtime::BackendInterface& backend() { return immortal<TensorRTBackend>(); }

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
