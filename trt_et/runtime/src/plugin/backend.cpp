#include "backend.h"

#include <exception>
#include <mutex>
#include <new>
#include <vector>

#include "common/log.h"
#include "cuda/device_allocator.h"
#include "delegate/delegate.h"
#include "delegate/event_tracing.h"

namespace trt_et {
namespace {

using executorch::runtime::ArrayRef;
using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::CompileSpec;
using executorch::runtime::DelegateHandle;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;
using executorch::runtime::Span;

// Nothing may throw into ExecuTorch, which is built without handlers.
template <typename F>
Error run(F&& function) noexcept {
  const LogScope scope;
  try {
    return report(function());
  } catch (const std::bad_alloc& error) {
    remember_error(error.what());
    return Error::MemoryAllocationFailed;
  } catch (const std::exception& error) {
    remember_error(error.what());
    return Error::Internal;
  }
}

}  // namespace

bool TensorRTBackend::is_available() const {
  clear_last_error();
  return run([] {
           cuda::Api* api = nullptr;
           int count = 0;
           Status status = cuda::usable_devices(&api, &count);
           if (status.ok() || status.error == Error::InvalidArgument) return status;
           return fail(
               status.error,
               "not available: %s. TRT_ET_CUDA=simulated:N runs engines of builder='reference'",
               status.text.c_str());
         }) == Error::Ok;
}

Result<DelegateHandle*> TensorRTBackend::init(BackendInitContext& context,
                                              FreeableBuffer* processed,
                                              ArrayRef<CompileSpec> compile_specs) const {
  clear_last_error();
  std::unique_ptr<Delegate> delegate;
  const TraceScope scope(context.event_tracer());
  const TraceEvent event("load");
  const Error error = run([&]() -> Status {
    LoadOptions options;
    TRT_ET_TRY(read_options(context, compile_specs, &options));
    // Our allocator has cleared its memory; ExecuTorch's own leaves in it what was there.
    if (cuda_allocator_is_registered()) options.state_inputs.clear();
    return Delegate::create(processed, context.get_named_data_map(), options, &delegate);
  });
  if (error != Error::Ok) return error;
  return delegate.release();
}

Error TensorRTBackend::execute(BackendExecutionContext& context, DelegateHandle* handle,
                               Span<EValue*> args) const {
  clear_last_error();
  if (handle == nullptr) return Error::DelegateInvalidHandle;
  const TraceScope scope(context.event_tracer());
  return run([&] { return static_cast<Delegate*>(handle)->execute(args); });
}

Error TensorRTBackend::set_option(
    executorch::runtime::BackendOptionContext&,
    const executorch::runtime::Span<executorch::runtime::BackendOption>& backend_options) {
  clear_last_error();
  return run([&] { return set_options({backend_options.data(), backend_options.size()}); });
}

// A program's static objects may go after CUDA and TensorRT have: what they own is left to the end
// of the process then.
void TensorRTBackend::destroy(DelegateHandle* handle) const {
  static std::mutex mutex;
  static auto* left = new std::vector<DelegateHandle*>;  // Reachable, so that it counts as no leak.
  (void)run([&] {
    if (cuda::is_ending()) {
      const std::lock_guard<std::mutex> lock(mutex);
      left->push_back(handle);
    } else {
      delete static_cast<Delegate*>(handle);
    }
    return Status{};
  });
}

TensorRTBackend& backend() {
  static auto* instance = new TensorRTBackend;
  return *instance;
}

}  // namespace trt_et
