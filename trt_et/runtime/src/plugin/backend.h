// ExecuTorch's interface to this project: the backend TRT_ET_BACKEND_NAME.
#pragma once

#include <executorch/runtime/backend/interface.h>

namespace trt_et {

class TensorRTBackend final : public executorch::runtime::BackendInterface {
 public:
  // True iff CUDA, real or simulated, has a device; logs the reason when it has none.
  bool is_available() const override;

  executorch::runtime::Result<executorch::runtime::DelegateHandle*> init(
      executorch::runtime::BackendInitContext& context,
      executorch::runtime::FreeableBuffer* processed,
      executorch::runtime::ArrayRef<executorch::runtime::CompileSpec> compile_specs) const override;

  executorch::runtime::Error execute(
      executorch::runtime::BackendExecutionContext& context,
      executorch::runtime::DelegateHandle* handle,
      executorch::runtime::Span<executorch::runtime::EValue*> args) const override;

  // The options of options.h.
  executorch::runtime::Error set_option(
      executorch::runtime::BackendOptionContext& context,
      const executorch::runtime::Span<executorch::runtime::BackendOption>& backend_options)
      override;

  void destroy(executorch::runtime::DelegateHandle* handle) const override;
};

// The instance that the plugin registers; it lives until the process ends.
TensorRTBackend& backend();

}  // namespace trt_et
