// How an engine is built: the blob's metadata "network", which the plugin has checked.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "provider_status.h"

namespace trt_et::tensorrt {

struct NetworkOptions {
  using Shape = std::vector<int64_t>;
  // Of each optimization profile: min, opt and max of its inputs.
  std::vector<std::map<std::string, std::array<Shape, 3>>> profiles;
  std::optional<int64_t> workspace_size;
  std::optional<int32_t> optimization_level;
  bool weight_streaming = false;
};

// What has no meaning here is logged and left out.
NetworkOptions read_network_options(const trt_et_engine_request& request);

}  // namespace trt_et::tensorrt
