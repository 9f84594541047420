// A delegate by way of the interface that ExecuTorch calls.
#pragma once

#include <executorch/runtime/core/memory_allocator.h>

#include <array>
#include <cstring>

#include "plugin/plugin.h"
#include "provider_support.h"

namespace trt_et {

using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::CompileSpec;
using executorch::runtime::DelegateHandle;

// Engines of the fake TensorRT: y = 2 * x.
inline Bytes scale_blob(const std::string& shape = "2,8") {
  return unary_blob(shape, "weights 256\nscratch 64\nscale y x 2\n");
}

inline Error set_option(const char* key, const char* text) {
  executorch::runtime::BackendOptionContext context;
  executorch::runtime::BackendOption option{};
  std::strncpy(option.key, key, sizeof option.key - 1);
  std::array<char, executorch::runtime::kMaxOptionValueLength> value{};
  std::strncpy(value.data(), text, value.size() - 1);
  option.value = value;
  return backend().set_option(context, {&option, 1});
}

class BackendDelegate {
 public:
  BackendDelegate() = default;
  BackendDelegate(const BackendDelegate&) = delete;
  BackendDelegate& operator=(const BackendDelegate&) = delete;
  ~BackendDelegate() { destroy(); }

  Error init(const Bytes& blob, std::vector<CompileSpec> specs = {}) {
    destroy();
    executorch::runtime::MemoryAllocator allocator(0, nullptr);
    BackendInitContext context(&allocator);
    executorch::runtime::FreeableBuffer bytes(blob.data(), blob.size(), nullptr);
    auto made = backend().init(context, &bytes, {specs.data(), specs.size()});
    if (made.ok()) handle_ = *made;
    return made.error();
  }

  Error execute(std::vector<EValue*> values) const {
    BackendExecutionContext context;
    return backend().execute(context, handle_, {values.data(), values.size()});
  }

  void destroy() {
    backend().destroy(handle_);
    handle_ = nullptr;
  }

 private:
  DelegateHandle* handle_ = nullptr;
};

}  // namespace trt_et
