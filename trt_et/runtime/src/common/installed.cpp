#include "installed.h"

#include <dlfcn.h>
#include <executorch/runtime/platform/runtime.h>

#include <filesystem>

namespace trt_et {

std::string folder_of(const void* symbol, int levels) {
  Dl_info info;
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return "";
  std::string path = info.dli_fname;
  // The program itself, which was found in PATH, or was started by this name.
  constexpr const char* kProgram = "/proc/self/exe";
  std::error_code unknown;
  if (path.find('/') == std::string::npos || path == kProgram) {
    path = std::filesystem::read_symlink(kProgram, unknown).string();
  }
  // Libraries that were found by $ORIGIN have ".." in their paths.
  path = std::filesystem::path(path).lexically_normal().string();
  for (int level = 0; level < levels; ++level) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return "";
    path.resize(slash);
  }
  return path;
}

std::string executorch_packages() {
  return folder_of(reinterpret_cast<const void*>(&executorch::runtime::runtime_init), 3);
}

}  // namespace trt_et
