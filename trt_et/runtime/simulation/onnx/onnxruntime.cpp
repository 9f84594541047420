#include "onnxruntime.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "common/process.h"
#include "simulated_api.h"

namespace trt_et::onnx {
namespace {

constexpr int kFatal = 4;  // Failures come back as a status; logged as well, each would be twice.
constexpr int kArena = 1;
constexpr int kDefaultMemory = 0;
constexpr const char* kVariable = "TRT_ET_ONNXRUNTIME_LIBRARY";

// OrtApiBase.
struct Base {
  const void* (*get_api)(uint32_t version);
  const char* (*get_version)();
};

// The wheel's library has its version in its name: libonnxruntime.so.1.32.0.
std::vector<std::string> candidates() {
  const char* named = cuda::simulated_api()->variable(kVariable);
  if (named != nullptr && *named != '\0') return {named};
  std::vector<std::string> found;
  const std::string pattern = executorch_packages() + "/onnxruntime/capi/libonnxruntime.so*";
  glob_t matches{};
  if (glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
    found.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  }
  globfree(&matches);
  found.insert(found.end(), {"libonnxruntime.so.1", "libonnxruntime.so"});
  return found;
}

Status open_handle(void** handle) {
  const char* named = cuda::simulated_api()->variable(kVariable);
  for (const std::string& path : candidates()) {
    *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (*handle != nullptr) return {};
  }
  if (named != nullptr && *named != '\0') {
    return fail(Error::NotFound, "%s names a library that does not load: %.120s", kVariable,
                dlerror());
  }
  return fail(Error::NotFound,
              "an ONNX payload runs on simulated GPUs through onnxruntime, which is not here: pip "
              "install onnxruntime, or set %s",
              kVariable);
}

Status fill(Library* library) {
  void* handle = nullptr;
  TRT_ET_TRY(open_handle(&handle));
  const auto get_base = reinterpret_cast<const Base* (*)()>(dlsym(handle, "OrtGetApiBase"));
  if (get_base == nullptr) {
    return {Error::NotSupported, "the library of onnxruntime has no OrtGetApiBase"};
  }
  const void* table = get_base()->get_api(kApiVersion);
  if (table == nullptr) {
    return fail(Error::NotSupported,
                "onnxruntime %.20s is older than 1.%u: pip install --upgrade onnxruntime",
                get_base()->get_version(), kApiVersion);
  }
  const auto* pointers = static_cast<const char*>(table);
#define TRT_ET_ORT(function, position, ...) \
  std::memcpy(&library->function, pointers + sizeof(void*) * (position), sizeof(void*));
#include "functions.def"
#undef TRT_ET_ORT
  TRT_ET_TRY(library->check(library->CreateEnv(kFatal, "trt_et", &library->environment),
                            "does not start"));
  TRT_ET_TRY(library->check(library->GetAllocatorWithDefaultOptions(&library->allocator),
                            "has no allocator"));
  return library->check(library->CreateCpuMemoryInfo(kArena, kDefaultMemory, &library->host_memory),
                        "has no host memory");
}

}  // namespace

Status Library::check(OrtStatus* returned, const char* what, Error error) const {
  if (returned == nullptr) return {};
  const Owned<OrtStatus> owned(returned, ReleaseStatus);
  return fail(error, "onnxruntime %s: %.150s", what, GetErrorMessage(returned));
}

Status open_library(const Library** library) {
  static std::mutex mutex;
  static auto* opened = new Library;  // It lives until the process ends.
  static bool ready = false;
  const std::lock_guard<std::mutex> lock(mutex);
  *library = opened;
  if (ready) return {};
  TRT_ET_TRY(fill(opened));
  ready = true;
  return {};
}

}  // namespace trt_et::onnx
