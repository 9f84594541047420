// The metadata document of a blob: strict JSON with checked types, ranges and cross-references.
#include <algorithm>
#include <map>
#include <set>

#include "blob.h"
#include "common/dtype.h"
#include "strict_json.h"

namespace trt_et {
namespace {

constexpr int64_t kMaxDeviceId = 127;  // ExecuTorch keeps a device index in an int8.
constexpr size_t kMaxKey = 200;
// Of inputs and outputs, aliases and optimization profiles. A file may not ask for more work.
constexpr size_t kMaxBindings = 4096;

bool is_permutation(const Dims& order, size_t rank) {
  if (order.size() != rank) return false;
  uint32_t seen = 0;
  for (const int64_t dim : order) {
    if (dim < 0 || static_cast<size_t>(dim) >= rank) return false;
    seen |= 1u << dim;
  }
  return seen == (1u << rank) - 1;
}

void check_ranges(const Binding& binding, bool all_given, JsonReader& reader) {
  const bool any =
      !binding.min_shape.empty() || !binding.opt_shape.empty() || !binding.max_shape.empty();
  const bool dynamic = binding.is_dynamic();
  if (dynamic && binding.dtype.empty()) {
    reader.refuse("has a dynamic shape, and no dtype");
    return;
  }
  if (any != dynamic || (dynamic && !all_given)) {
    reader.refuse("needs min_shape, opt_shape and max_shape exactly where its shape has a -1");
    return;
  }
  const size_t rank = binding.shape.size();
  if (dynamic) {
    bool possible = binding.min_shape.size() == rank && binding.opt_shape.size() == rank &&
                    binding.max_shape.size() == rank;
    for (size_t i = 0; possible && i < rank; ++i) {
      const int64_t low = binding.min_shape[i], high = binding.max_shape[i];
      possible = low <= binding.opt_shape[i] && binding.opt_shape[i] <= high &&
                 (binding.shape[i] == -1 || (binding.shape[i] == low && low == high));
    }
    if (!possible) reader.refuse("has an impossible shape range");
  }
  if (binding.dim_order && !is_permutation(*binding.dim_order, rank)) {
    reader.refuse("has a dim_order of another rank");
  }
}

Status read_binding(const Json& entry, size_t index, Binding* binding) {
  JsonReader reader(entry, "binding " + std::to_string(index));
  reader.text("name", &binding->name, /*required=*/true);
  if (binding->name.find('\0') != std::string::npos) reader.refuse("has a NUL in its name");
  reader.text("dtype", &binding->dtype);
  if (!binding->dtype.empty() && !dtype_from_name(binding->dtype)) {
    reader.refuse("has the unknown dtype " + binding->dtype.substr(0, 40));
  }
  reader.dims("shape", -1, &binding->shape);
  reader.boolean("is_input", &binding->is_input, /*required=*/true);
  bool all = reader.dims("min_shape", 0, &binding->min_shape);
  all = reader.dims("opt_shape", 0, &binding->opt_shape) && all;
  all = reader.dims("max_shape", 0, &binding->max_shape) && all;
  Dims order;
  if (reader.dims("dim_order", 0, &order)) binding->dim_order = std::move(order);
  reader.text("value_of", &binding->value_of);
  if (!binding->value_of.empty() && (binding->is_input || binding->dtype.empty())) {
    reader.refuse("has a value_of, but is no output with a dtype");
  }
  if (reader.status().ok()) check_ranges(*binding, all, reader);
  return reader.status();
}

Status check_count(const Json& entries, const char* what) {
  if (entries.size() <= kMaxBindings) return {};
  return fail(Error::InvalidProgram, "engine metadata has %zu %s; at most %zu allowed",
              entries.size(), what, kMaxBindings);
}

Status read_bindings(const Json& entries, Metadata* metadata) {
  TRT_ET_TRY(check_count(entries, "io_bindings"));
  metadata->bindings.resize(entries.size());
  std::set<std::string> names;
  for (size_t i = 0; i < entries.size(); ++i) {
    TRT_ET_TRY(read_binding(entries[i], i, &metadata->bindings[i]));
    if (!names.insert(metadata->bindings[i].name).second) {
      return fail(Error::InvalidProgram, "two bindings of the engine have the name '%.60s'",
                  metadata->bindings[i].name.c_str());
    }
  }
  return {};
}

Status read_aliases(const Json& entries, Metadata* metadata) {
  TRT_ET_TRY(check_count(entries, "aliased_io"));
  std::map<std::string, bool> is_input;
  for (const Binding& binding : metadata->bindings) is_input[binding.name] = binding.is_input;
  for (const Json& entry : entries) {
    Alias alias{"", "", "kv_cache_update"};
    JsonReader reader(entry, "aliased_io");
    reader.text("output", &alias.output, /*required=*/true);
    reader.text("input", &alias.input, /*required=*/true);
    reader.text("kind", &alias.kind);
    TRT_ET_TRY(Status(reader.status()));
    const auto source = is_input.find(alias.input), sink = is_input.find(alias.output);
    if (source == is_input.end() || sink == is_input.end() || !source->second || sink->second) {
      return fail(Error::InvalidProgram, "alias '%.60s' -> '%.60s' names no output and input",
                  alias.output.c_str(), alias.input.c_str());
    }
    metadata->aliases.push_back(std::move(alias));
  }
  return {};
}

Status read_capabilities(const Json& entries, Metadata* metadata) {
  for (const Json& entry : entries) {
    const auto* text = entry.get_ptr<const std::string*>();
    if (text == nullptr) {
      return fail(Error::InvalidProgram, "engine metadata: compute_capabilities must be strings");
    }
    metadata->compute_capabilities.push_back(*text);
  }
  return {};
}

void read_device_id(const Json& document, Metadata* metadata) {
  const auto found = document.find("device_id");
  if (found == document.end()) return;
  int64_t value = 0;
  const bool usable = json_integer(*found, &value) && value >= 0 && value <= kMaxDeviceId;
  metadata->device_id_state = usable ? DeviceIdState::present : DeviceIdState::unreadable;
  metadata->device_id = usable ? static_cast<int>(value) : 0;
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// A key may become the name of a file.
bool is_key(const std::string& key) {
  constexpr const char* kCharacters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-.";
  return !key.empty() && key.size() <= kMaxKey && key.front() != '.' &&
         key.find_first_not_of(kCharacters) == key.npos;
}

void read_weights(const Json& entries, JsonReader& reader, Metadata* metadata) {
  for (const Json& entry : entries) {
    const auto* key = entry.get_ptr<const std::string*>();
    if (key == nullptr || !is_key(*key)) return reader.refuse("weights has no usable name");
    if (!metadata->weights.empty() && *key <= metadata->weights.back()) {
      return reader.refuse("weights is not sorted");
    }
    metadata->weights.push_back(*key);
  }
}

// [min, opt, max]
bool is_range(const Json& sizes, const Binding& binding) {
  if (!sizes.is_array() || sizes.size() != 3) return false;
  const size_t rank = binding.shape.size();
  for (const Json& shape : sizes) {
    if (!shape.is_array() || shape.size() != rank) return false;
  }
  for (size_t i = 0; i < rank; ++i) {
    int64_t low = 0, best = 0, high = 0;
    if (!json_integer(sizes[0][i], &low) || !json_integer(sizes[1][i], &best) ||
        !json_integer(sizes[2][i], &high) || low < 0 || low > best || best > high) {
      return false;
    }
    if (binding.shape[i] >= 0 && (low != binding.shape[i] || high != low)) return false;
  }
  return true;
}

void read_profiles(const Json& profiles, JsonReader& reader, const Metadata& metadata) {
  std::map<std::string_view, const Binding*> inputs;
  for (const Binding& binding : metadata.bindings) {
    if (binding.is_input) inputs[binding.name] = &binding;
  }
  const Status few = check_count(profiles, "profiles");
  if (!few.ok()) return reader.refuse(few.text);
  for (const Json& profile : profiles) {
    if (!profile.is_object()) return reader.refuse("profiles has no objects");
    for (const auto& [name, sizes] : profile.items()) {
      const auto input = inputs.find(name);
      if (input == inputs.end()) {
        return reader.refuse("profiles names no input: " + name.substr(0, 60));
      }
      if (!is_range(sizes, *input->second)) {
        return reader.refuse("profiles has an impossible range of " + name.substr(0, 60));
      }
    }
  }
}

// Of an ONNX network: the member "network" of a blob whose builder is "onnx". It is checked and
// kept as text, with its list of weights. Members that are not known are kept for the provider.
Status read_network(const Json& network, Metadata* metadata) {
  JsonReader reader(network, "network");
  bool flag = false;
  reader.boolean("strongly_typed", &flag);
  reader.boolean("weight_streaming", &flag);
  for (const char* number : {"workspace_size", "optimization_level"}) {
    int64_t value = 0;
    const auto found = network.is_object() ? network.find(number) : network.end();
    if (found != network.end() && (!json_integer(*found, &value) || value < 0)) {
      reader.refuse(std::string(number) + " is no number >= 0");
    }
  }
  if (const Json* weights = reader.list("weights")) read_weights(*weights, reader, metadata);
  if (const Json* profiles = reader.list("profiles")) read_profiles(*profiles, reader, *metadata);
  metadata->network = network.dump();
  return reader.status();
}

}  // namespace

Status parse_metadata(const char* text, size_t size, Metadata* metadata) {
  Json document;
  TRT_ET_TRY(load_json(text, size, &document));
  JsonReader reader(document, "engine metadata");
  const Json* bindings = reader.list("io_bindings", /*required=*/true);
  const Json* aliases = reader.list("aliased_io");
  const Json* capabilities = reader.list("compute_capabilities");
  reader.boolean("hardware_compatible", &metadata->hardware_compatible);
  reader.text("serialized_metadata", &metadata->serialized_metadata);
  reader.text("target_platform", &metadata->target_platform);
  reader.text("builder", &metadata->builder);
  reader.text("library_version", &metadata->library_version);
  reader.text("gpu_name", &metadata->gpu_name);
  reader.text("sha256", &metadata->sha256);
  reader.text("engine_key", &metadata->engine_key);
  if (!metadata->sha256.empty() && !is_sha256(metadata->sha256)) {
    reader.refuse("sha256 is not 64 hex digits");
  }
  TRT_ET_TRY(Status(reader.status()));
  read_device_id(document, metadata);
  TRT_ET_TRY(read_bindings(*bindings, metadata));
  if (capabilities != nullptr) TRT_ET_TRY(read_capabilities(*capabilities, metadata));
  if (aliases != nullptr) TRT_ET_TRY(read_aliases(*aliases, metadata));
  const auto network = document.find("network");
  if (network == document.end()) return {};
  if (metadata->builder != "onnx") {
    return fail(Error::InvalidProgram, "engine metadata has a network, but the builder '%.40s'",
                metadata->builder.c_str());
  }
  return read_network(*network, metadata);
}

}  // namespace trt_et
