#include "process.h"

#include <dlfcn.h>
#include <executorch/runtime/platform/runtime.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "immortal.h"

namespace trt_et {
namespace {

namespace fs = std::filesystem;

// The file that holds a symbol, by an absolute path whose folders are no links; "" if not known.
fs::path file_of(const void* symbol) {
  Dl_info info;
  link_map* map = nullptr;
  std::error_code failed;
  if (dladdr1(symbol, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return {};
  // The loader has no name for the program itself.
  if (map->l_name == nullptr || *map->l_name == '\0') {
    return fs::read_symlink("/proc/self/exe", failed);
  }
  const fs::path file = fs::absolute(map->l_name, failed);
  const fs::path folder = fs::canonical(file.parent_path(), failed);
  return failed ? file.lexically_normal() : folder / file.filename();
}

const fs::path& own_file() {
  static const auto* file = new fs::path(file_of(reinterpret_cast<const void*>(&note_process)));
  return *file;
}

const fs::path& executorch_file() {
  static const auto* file =
      new fs::path(file_of(reinterpret_cast<const void*>(&executorch::runtime::runtime_init)));
  return *file;
}

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

void note_process() {
  (void)environment();
  (void)own_file();
  (void)executorch_file();
}

std::string beside_plugin(const std::string& name) {
  std::error_code failed;
  fs::path path = own_file().parent_path() / name;
  if (!fs::exists(path, failed)) {
    const fs::path linked = fs::canonical(own_file(), failed).parent_path() / name;
    if (fs::exists(linked, failed)) path = linked;
  }
  return path.string();
}

// <site-packages>/trt_et/runtime/lib/<library>
std::string own_packages() {
  return own_file().parent_path().parent_path().parent_path().parent_path().string();
}

// <site-packages>/executorch/lib/<library>
std::string executorch_packages() {
  return executorch_file().parent_path().parent_path().parent_path().string();
}

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
