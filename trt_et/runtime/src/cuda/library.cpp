#include "library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "common/installed.h"

namespace trt_et::cuda {
namespace {

constexpr const char* kRuntimeNames[] = {"libcudart.so.13", "libcudart.so.12"};

// Where pip's wheels put them, from site-packages.
constexpr const char* kWheelFolders[] = {"nvidia/cu13/lib", "nvidia/cuda_runtime/lib"};

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

Status open_runtime(void** library) {
  const char* named = std::getenv("TRT_ET_CUDART_LIBRARY");
  if (named != nullptr && *named != '\0') {
    *library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (*library != nullptr) return {};
    return fail(Error::NotFound, "TRT_ET_CUDART_LIBRARY names a library that does not load: %s",
                dlerror());
  }
  for (const char* name : kRuntimeNames) {
    *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (*library != nullptr) return {};
  }
  // This library is <site-packages>/trt_et/runtime/lib/<library>, but in a source tree.
  for (const std::string& packages :
       {folder_of(reinterpret_cast<const void*>(&open_driver), 4), executorch_packages()}) {
    for (const char* folder : kWheelFolders) {
      if (packages.empty()) break;
      for (const char* name : kRuntimeNames) {
        const std::string path = packages + "/" + folder + "/" + name;
        *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (*library != nullptr) return {};
      }
    }
  }
  return {Error::NotFound,
          "no CUDA runtime (libcudart.so.13 or .12 not found): pip install nvidia-cuda-runtime, or "
          "set TRT_ET_CUDART_LIBRARY"};
}

}  // namespace trt_et::cuda
