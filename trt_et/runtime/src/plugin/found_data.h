// Named data of another source than ExecuTorch's loader.
#pragma once

#include <executorch/runtime/core/named_data_map.h>
#include <functional>
#include <string_view>
#include <utility>

namespace trt_et {

// Finds data by key. A build asks for nothing else of ExecuTorch's interface.
class FoundData final : public executorch::runtime::NamedDataMap {
 public:
  using Buffer = executorch::runtime::Result<executorch::runtime::FreeableBuffer>;

  explicit FoundData(std::function<Buffer(std::string_view key)> find) : find_(std::move(find)) {}

  Buffer get_data(std::string_view key) const override { return find_(key); }
  executorch::runtime::Result<const executorch::runtime::TensorLayout> get_tensor_layout(
      std::string_view) const override {
    return executorch::runtime::Error::NotSupported;
  }
  executorch::runtime::Error load_data_into(std::string_view, void*, size_t) const override {
    return executorch::runtime::Error::NotSupported;
  }
  executorch::runtime::Result<uint32_t> get_num_keys() const override {
    return executorch::runtime::Error::NotSupported;
  }
  executorch::runtime::Result<const char*> get_key(uint32_t) const override {
    return executorch::runtime::Error::NotSupported;
  }

 private:
  std::function<Buffer(std::string_view)> find_;
};

}  // namespace trt_et
