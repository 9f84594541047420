// JSON as the metadata of a blob has to be: strict, shallow, without duplicate keys, and read by
// exact types.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "blob.h"
#include "common/status.h"

namespace trt_et {

using Json = nlohmann::json;

// Parses one object. May throw std::bad_alloc, and nothing else.
Status load_json(const char* text, size_t size, Json* document);

// An integer that fits; booleans, floats and larger numbers are none.
bool json_integer(const Json& value, int64_t* out);

// Reads typed members of one object; the first problem sticks, so that calls can be chained.
class JsonReader {
 public:
  // `where` names the object in messages.
  JsonReader(const Json& object, std::string where);

  // Each leaves `out` alone where the key is absent.
  void text(const char* key, std::string* out, bool required = false) {
    read(key, out, required, " is not a string");
  }
  void boolean(const char* key, bool* out, bool required = false) {
    read(key, out, required, " is not a boolean");
  }

  // Null where the key is absent.
  const Json* list(const char* key, bool required = false);

  // A list of integers >= minimum, at most 16. Returns whether the key was there.
  bool dims(const char* key, int64_t minimum, Dims* out);

  void refuse(const std::string& why);
  const Status& status() const { return status_; }

 private:
  const Json* find(const char* key, bool required);
  template <typename T>
  void read(const char* key, T* out, bool required, const char* problem) {
    const Json* value = find(key, required);
    const T* found = value == nullptr ? nullptr : value->get_ptr<const T*>();
    if (found != nullptr) *out = *found;
    if (value != nullptr && found == nullptr) refuse(key + std::string(problem));
  }

  const Json& object_;
  const std::string where_;
  Status status_;
};

}  // namespace trt_et
