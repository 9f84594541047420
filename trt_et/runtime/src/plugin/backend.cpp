#include <mutex>
#include <vector>

#include "common/entry.h"
#include "common/immortal.h"
#include "common/log.h"
#include "cuda/device_allocator.h"
#include "delegate/delegate.h"
#include "delegate/event_tracing.h"
#include "plugin.h"

namespace trt_et {
namespace {

using namespace executorch::runtime;

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

}  // namespace trt_et
