#include "network_options.h"

#include <nlohmann/json.hpp>

namespace trt_et::tensorrt {

NetworkOptions read_network_options(const trt_et_engine_request& request) {
  NetworkOptions options;
  if (*request.network == '\0') return options;
  const auto network = nlohmann::json::parse(request.network);
  for (const auto& [name, value] : network.items()) {
    if (name == "profiles") {
      value.get_to(options.profiles);
    } else if (name == "workspace_size") {
      options.workspace_size = value.get<int64_t>();
    } else if (name == "optimization_level") {
      options.optimization_level = value.get<int32_t>();
    } else if (name == "weight_streaming") {
      options.weight_streaming = value.get<bool>();
    } else if (name != "weights" && name != "strongly_typed") {
      host().log(TRT_ET_LOG_INFO, ("network: ignores " + name.substr(0, 60)).c_str());
    }
  }
  return options;
}

}  // namespace trt_et::tensorrt
