#include "strict_json.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <vector>

namespace trt_et {
namespace {

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxRank = 16;
constexpr std::ptrdiff_t kMaxObjects = 16384;

// Sees the parser's events: refuses duplicate keys and too deep a nesting, which the parser itself
// lets through. Once something was refused the rest is discarded, not kept.
class Strictness {
 public:
  bool accept(Json::parse_event_t event, const Json& parsed) {
    if (problem_ != nullptr) return false;
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        keys_.emplace_back();
        if (keys_.size() > kMaxDepth) problem_ = "is nested deeper than 16";
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        if (!keys_.empty()) keys_.pop_back();
        break;
      case Json::parse_event_t::key:
        if (!keys_.back().insert(parsed.get_ref<const std::string&>()).second) {
          problem_ = "has the same key twice";
        }
        break;
      case Json::parse_event_t::value:
        break;
    }
    return problem_ == nullptr;
  }

  const char* problem() const { return problem_; }

 private:
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
  // The parser looks at all that an object lies beside when the object ends.
  if (std::count(text, text + size, '{') > kMaxObjects) {
    return fail(Error::InvalidProgram, "engine metadata has more than %td objects", kMaxObjects);
  }
  Strictness strictness;
  const auto callback = [&strictness](int, Json::parse_event_t event, Json& parsed) {
    return strictness.accept(event, parsed);
  };
  *document = Json::parse(text, text + size, callback, /*allow_exceptions=*/false);
  if (strictness.problem() != nullptr) {
    return fail(Error::InvalidProgram, "engine metadata %s", strictness.problem());
  }
  if (document->is_discarded()) return fail(Error::InvalidProgram, "engine metadata is not JSON");
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
