#include "environment.h"

#include <unistd.h>

#include <cstring>

#include "immortal.h"

namespace trt_et {
namespace {

struct Environment {
  Environment() {
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const char* equals = std::strchr(*entry, '=');
      if (equals != nullptr)
        values.try_emplace(std::string(*entry, static_cast<size_t>(equals - *entry)), equals + 1);
    }
  }
  std::map<std::string, std::string> values;
};

}  // namespace

const std::map<std::string, std::string>& environment() { return immortal<Environment>().values; }

const char* environment_variable(const char* name) {
  const auto found = environment().find(name);
  return found == environment().end() ? nullptr : found->second.c_str();
}

void set_environment_variable(const char* name, const char* value) {
  auto& values = immortal<Environment>().values;
  values.erase(name);
  if (value != nullptr) values[name] = value;
}

}  // namespace trt_et
