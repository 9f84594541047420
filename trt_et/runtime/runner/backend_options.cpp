#include "backend_options.h"

#include <executorch/runtime/backend/interface.h>
#include <trt_et/runtime.h>

#include <cstdio>
#include <cstring>

namespace trt_et::runner {

using executorch::runtime::BackendOption;
using executorch::runtime::Error;
using executorch::runtime::Span;

bool set_backend_options(const std::vector<std::pair<std::string, std::string>>& options) {
  for (const auto& [name, text] : options) {
    BackendOption option{};
    std::array<char, executorch::runtime::kMaxOptionValueLength> value{};
    if (text.size() >= value.size()) {
      std::fprintf(stderr, "executor_runner: --%s has %zu characters, at most %zu are taken\n",
                   name.c_str(), text.size(), value.size() - 1);
      return false;
    }
    std::memcpy(value.data(), text.data(), text.size());
    std::memcpy(option.key, name.c_str(), name.size() + 1);
    option.value = value;
    if (executorch::runtime::set_option(TRT_ET_BACKEND_NAME, {&option, 1}) != Error::Ok) {
      std::fprintf(stderr, "executor_runner: --%s is refused: %s\n", name.c_str(),
                   trt_et_last_error());
      return false;
    }
  }
  return true;
}

}  // namespace trt_et::runner
