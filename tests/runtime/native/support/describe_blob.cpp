#include "describe_blob.h"

#include <cstdio>
#include <nlohmann/json.hpp>

using namespace trt_et;
using Json = nlohmann::json;

namespace {

Json binding_json(const Binding& binding) {
  Json out = {{"name", binding.name},
              {"dtype", binding.dtype},
              {"shape", binding.shape},
              {"is_input", binding.is_input}};
  if (binding.is_dynamic()) {
    out["min_shape"] = binding.min_shape;
    out["opt_shape"] = binding.opt_shape;
    out["max_shape"] = binding.max_shape;
  }
  if (binding.dim_order) out["dim_order"] = *binding.dim_order;
  if (!binding.value_of.empty()) out["value_of"] = binding.value_of;
  return out;
}

Json blob_json(const Blob& blob) {
  const Metadata& metadata = blob.metadata;
  Json bindings = Json::array(), aliases = Json::array();
  for (const Binding& binding : metadata.bindings) bindings.push_back(binding_json(binding));
  for (const Alias& alias : metadata.aliases) {
    aliases.push_back({{"output", alias.output}, {"input", alias.input}, {"kind", alias.kind}});
  }
  Json out = {{"magic", blob.magic},
              {"has_checksum", blob.has_checksum},
              {"engine_offset", blob.engine_offset},
              {"engine_size", blob.engine_size},
              {"io_bindings", std::move(bindings)},
              {"aliased_io", std::move(aliases)},
              {"hardware_compatible", metadata.hardware_compatible},
              {"device_id", nullptr},
              {"serialized_metadata", metadata.serialized_metadata},
              {"target_platform", metadata.target_platform},
              {"builder", metadata.builder},
              {"library_version", metadata.library_version},
              {"compute_capabilities", metadata.compute_capabilities},
              {"gpu_name", metadata.gpu_name},
              {"sha256", metadata.sha256},
              {"engine_key", metadata.engine_key}};
  if (!metadata.network.empty()) out["network"] = Json::parse(metadata.network);
  if (metadata.device_id_state == DeviceIdState::present) out["device_id"] = metadata.device_id;
  return out;
}

}  // namespace

std::string describe_blob(const Blob& blob) { return blob_json(blob).dump(); }

// For Python. Returns the length of the text, or minus the error's code, with the reason in `out`.
extern "C" __attribute__((visibility("default"))) int64_t read_blob(const void* data, size_t size,
                                                                    char* out, size_t capacity) {
  Blob blob;
  const Status status = parse_blob(data, size, &blob);
  const std::string text = status.ok() ? describe_blob(blob) : status.text;
  std::snprintf(out, capacity, "%s", text.c_str());
  return status.ok() ? static_cast<int64_t>(text.size()) : -static_cast<int64_t>(status.error);
}
