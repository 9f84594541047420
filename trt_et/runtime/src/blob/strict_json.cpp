#include "strict_json.h"

#include <cstring>
#include <set>
#include <vector>

namespace trt_et {
namespace {

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxRank = 16;

// Refuses duplicate keys and too deep a nesting, which the parser itself lets through. In a pass of
// its own: with a callback, the parser looks at all that an object lies beside when the object
// ends.
class Strictness final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return begin(); }
  bool start_array(size_t) override { return begin(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) problem_ = "has the same key twice";
    return problem_ == nullptr;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

  const char* problem() const { return problem_; }

 private:
  bool begin() {
    keys_.emplace_back();
    if (keys_.size() > kMaxDepth) problem_ = "is nested deeper than 16";
    return problem_ == nullptr;
  }
  bool end() { return keys_.pop_back(), true; }

  std::vector<std::set<std::string>> keys_;  // in order: a file may choose keys of one hash
  const char* problem_ = nullptr;
};

}  // namespace

Status load_json(const char* text, size_t size, Json* document) {
  // The parser skips a byte order mark; JSON has none, and the Python reader refuses it.
  if (size >= 1 && static_cast<unsigned char>(text[0]) == 0xEF) {
    return fail(Error::InvalidProgram,
                "engine metadata is not JSON: it starts with a byte order mark");
  }
  // To the parser, a NUL is the end of the text, and what follows is not looked at.
  if (size > 0 && std::memchr(text, 0, size) != nullptr) {
    return fail(Error::InvalidProgram, "engine metadata is not JSON: it contains a NUL byte");
  }
  Strictness strictness;
  const bool is_json = Json::sax_parse(text, text + size, &strictness);
  if (strictness.problem() != nullptr) {
    return fail(Error::InvalidProgram, "engine metadata %s", strictness.problem());
  }
  if (!is_json) return fail(Error::InvalidProgram, "engine metadata is not JSON");
  *document = Json::parse(text, text + size, nullptr, /*allow_exceptions=*/false);
  if (!document->is_object()) {
    return fail(Error::InvalidProgram, "engine metadata is not a JSON object");
  }
  return {};
}

bool json_integer(const Json& value, int64_t* out) {
  // Floats and booleans are other types.
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) return false;
  *out = value.get<int64_t>();
  return true;
}

JsonReader::JsonReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) refuse("is not an object");
}

const Json* JsonReader::list(const char* key, bool required) {
  const Json* value = find(key, required);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    refuse(std::string(key) + " is not a list");
    return nullptr;
  }
  return value;
}

bool JsonReader::dims(const char* key, int64_t minimum, Dims* out) {
  const Json* value = list(key);
  if (value == nullptr) return false;
  if (value->size() > kMaxRank) {
    refuse(std::string(key) + " has more than 16 dimensions");
    return true;
  }
  for (const Json& item : *value) {
    int64_t size = 0;
    if (!json_integer(item, &size) || size < minimum) {
      refuse(std::string(key) + " has a dimension that is no size");
      return true;
    }
    out->push_back(size);
  }
  return true;
}

void JsonReader::refuse(const std::string& why) {
  if (!status_.ok()) return;
  status_ = fail(Error::InvalidProgram, "%.60s: %.120s", where_.c_str(), why.c_str());
}

const Json* JsonReader::find(const char* key, bool required) {
  if (!status_.ok()) return nullptr;
  const auto found = object_.find(key);
  if (found != object_.end()) return &*found;
  if (required) refuse(std::string("has no ") + key);
  return nullptr;
}

}  // namespace trt_et
