// A delegate that does nothing: what ExecuTorch itself costs.
#include <executorch/runtime/backend/interface.h>

namespace {

using namespace executorch::runtime;

class NoopBackend final : public BackendInterface {
 public:
  bool is_available() const override { return true; }

  Result<DelegateHandle*> init(BackendInitContext&, FreeableBuffer*,
                               ArrayRef<CompileSpec>) const override {
    return nullptr;
  }

  Error execute(BackendExecutionContext&, DelegateHandle*, Span<EValue*>) const override {
    return Error::Ok;
  }
};

NoopBackend backend;
const Error registered = register_backend({"NoopBackend", &backend});

}  // namespace
