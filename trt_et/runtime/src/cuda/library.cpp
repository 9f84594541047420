#include "library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "common/installed.h"

namespace trt_et::cuda {
namespace {

constexpr int kRuntimeMajors[] = {13, 12};

using GetVersion = int (*)(int*);

// 12040 for CUDA 12.4; 0 where a library does not say.
int version_of(void* library, const char* function) {
  const auto get = reinterpret_cast<GetVersion>(dlsym(library, function));
  int version = 0;
  return get != nullptr && get(&version) == 0 ? version : 0;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// A runtime of a later major than the driver knows fails at every call (error 35).
bool runs_on(int runtime, int driver) {
  return runtime == 0 || driver == 0 || runtime / 1000 <= driver / 1000;
}

Status open_named(const char* path, int driver, void** library) {
  *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (*library == nullptr) {
    return fail(Error::NotFound, "TRT_ET_CUDART_LIBRARY names a library that does not load: %s",
                dlerror());
  }
  const int version = version_of(*library, "cudaRuntimeGetVersion");
  if (runs_on(version, driver)) return {};
  dlclose(*library);
  return fail(Error::NotFound,
              "TRT_ET_CUDART_LIBRARY is CUDA %s, and the driver supports CUDA up to %s: update the "
              "driver, or name libcudart.so.%d",
              version_text(version).c_str(), version_text(driver).c_str(), driver / 1000);
}

// Where pip's wheels put them, from site-packages.
constexpr const char* kWheelFolders[] = {"nvidia/cu13/lib", "nvidia/cuda_runtime/lib"};

// Folders that the loader does not search: of pip's wheels, of conda, and of NVIDIA's installer.
std::vector<std::string> folders_of_major(int major) {
  // This library is <site-packages>/trt_et/runtime/lib/<library>, but in a source tree.
  const std::string packages[] = {folder_of(reinterpret_cast<const void*>(&open_driver), 4),
                                  executorch_packages()};
  std::vector<std::string> folders;
  for (const std::string& parent : packages) {
    for (const char* folder : kWheelFolders) {
      if (!parent.empty()) folders.push_back(parent + "/" + folder);
    }
  }
  constexpr std::pair<const char*, const char*> kVariables[] = {
      {"CONDA_PREFIX", "/lib"}, {"CUDA_HOME", "/lib64"}, {"CUDA_PATH", "/lib64"}};
  for (const auto& [variable, folder] : kVariables) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') folders.push_back(std::string(value) + folder);
  }
  folders.push_back("/usr/local/cuda-" + std::to_string(major) + "/lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  return folders;
}

}  // namespace

Status open_driver(void** library) {
  void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return {Error::NotFound, "no NVIDIA driver (libcuda.so.1 not found)"};
  }
  using Init = int (*)(unsigned);
  const auto init = reinterpret_cast<Init>(dlsym(handle, "cuInit"));
  const int code = init == nullptr ? -1 : init(0);
  if (code != 0) {
    dlclose(handle);
    return fail(Error::NotFound, "NVIDIA driver is unusable: cuInit failed with error %d%s", code,
                code == 100 ? " (no GPU)" : "");
  }
  *library = handle;
  return {};
}

Status open_runtime(void* driver_library, void** library) {
  const int driver = version_of(driver_library, "cuDriverGetVersion");
  const char* named = std::getenv("TRT_ET_CUDART_LIBRARY");
  if (named != nullptr && *named != '\0') return open_named(named, driver, library);
  for (const int major : kRuntimeMajors) {
    if (!runs_on(major * 1000, driver)) continue;
    const std::string name = "libcudart.so." + std::to_string(major);
    *library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (*library != nullptr) return {};
    for (const std::string& folder : folders_of_major(major)) {
      *library = dlopen((folder + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (*library != nullptr) return {};
    }
  }
  if (!runs_on(kRuntimeMajors[0] * 1000, driver)) {
    return fail(
        Error::NotFound,
        "no CUDA runtime for this driver, which supports CUDA up to %s (libcudart.so.12 not "
        "found): pip install nvidia-cuda-runtime-cu12, or update the driver",
        version_text(driver).c_str());
  }
  return {Error::NotFound,
          "no CUDA runtime (libcudart.so.13 or .12 not found): pip install nvidia-cuda-runtime, or "
          "set TRT_ET_CUDART_LIBRARY"};
}

}  // namespace trt_et::cuda
