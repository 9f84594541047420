#include "network.h"

#include <algorithm>

namespace trt_et {
namespace {

constexpr size_t kMaxKey = 200;

// A key may become the name of a file.
bool is_key(const std::string& key) {
  return !key.empty() && key.size() <= kMaxKey && key.front() != '.' &&
         std::all_of(key.begin(), key.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '_' || c == '-' || c == '.';
         });
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
  for (const Json& profile : profiles) {
    if (!profile.is_object()) return reader.refuse("profiles has no objects");
    for (const auto& [name, sizes] : profile.items()) {
      const auto binding = std::find_if(
          metadata.bindings.begin(), metadata.bindings.end(),
          [&, &input = name](const Binding& one) { return one.is_input && one.name == input; });
      if (binding == metadata.bindings.end()) {
        return reader.refuse("profiles names no input: " + name.substr(0, 60));
      }
      if (!is_range(sizes, *binding)) {
        return reader.refuse("profiles has an impossible range of " + name.substr(0, 60));
      }
    }
  }
}

}  // namespace

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

}  // namespace trt_et
