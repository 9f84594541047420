// What an engine that is built for a request depends on, besides the TensorRT and the GPU that
// build it. The plugin, which shares engines in a process, and the providers, which keep them in
// files, tell engines apart by this one text.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "engine_provider.h"

namespace trt_et {

inline void add_fact(std::string* text, const char* name, const std::string& value) {
  *text += std::string(name) + "=" + value + "\n";
}

inline void add_sizes(std::string* text, const char* name, const int64_t* sizes, int32_t rank) {
  std::string joined;
  for (int32_t i = 0; i < rank; ++i) joined += std::to_string(sizes[i]) + ",";
  add_fact(text, name, joined);
}

inline std::string identity_of(const trt_et_engine_request& request) {
  std::string text;
  add_fact(&text, "model", request.sha256);
  add_fact(&text, "network", request.network);
  for (size_t i = 0; i < request.binding_count; ++i) {
    const trt_et_binding& binding = request.bindings[i];
    add_fact(&text, "binding", binding.name);
    add_sizes(&text, "min", binding.min_dims, binding.rank);
    add_sizes(&text, "opt", request.opt_dims[i], binding.rank);
    add_sizes(&text, "max", binding.max_dims, binding.rank);
  }
  for (std::string_view left = request.plugin_libraries; !left.empty();) {
    const std::filesystem::path library = left.substr(0, left.find(':'));
    left.remove_prefix(std::min(left.size(), library.native().size() + 1));
    std::error_code unknown;
    const auto size = std::filesystem::file_size(library, unknown);
    add_fact(&text, "plugins",
             library.filename().string() + " " + std::to_string(unknown ? 0 : size));
  }
  return text;
}

}  // namespace trt_et
