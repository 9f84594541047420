#include "load_options.h"

#include <cstdio>
#include <cstring>

namespace trt_et::runner {

using executorch::runtime::BackendOption;
using executorch::runtime::Span;

bool LoadOptionsMap::fill(const std::vector<std::pair<std::string, std::string>>& options) {
  for (const auto& [name, text] : options) {
    BackendOption& option = options_.emplace_back();
    std::array<char, executorch::runtime::kMaxOptionValueLength> value{};
    if (text.size() >= value.size()) {
      std::fprintf(stderr, "executor_runner: --%s has %zu characters, at most %zu are taken\n",
                   name.c_str(), text.size(), value.size() - 1);
      return false;
    }
    std::memcpy(value.data(), text.data(), text.size());
    std::memcpy(option.key, name.c_str(), name.size() + 1);
    option.value = value;
  }
  if (options_.empty()) return true;
  const Span<BackendOption> all(options_.data(), options_.size());
  return map_.set_options("TensorRTBackend", all) == executorch::runtime::Error::Ok;
}

}  // namespace trt_et::runner
