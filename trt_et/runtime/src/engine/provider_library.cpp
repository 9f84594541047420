#include "provider_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "common/immortal.h"
#include "common/installed.h"
#include "common/log.h"
#include "cuda/cuda_api.h"
#include "engine.h"

namespace trt_et {
namespace {

constexpr const char* kEnterpriseMajors[] = {"11", "10", "8"};

std::string library_name(const std::string& which) { return "libtrt_et_tensorrt_" + which + ".so"; }

std::vector<std::string> folders() {
  std::vector<std::string> found;
  const char* path = std::getenv("TRT_ET_PROVIDER_PATH");
  std::string rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    if (colon != 0) found.push_back(rest.substr(0, colon));
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  found.push_back(folder_of(reinterpret_cast<const void*>(&provider_libraries), 1));
  return found;
}

// TensorRT's verbose lines, a hundred for each engine, are dropped.
void log_of_provider(int level, const char* text) {
  if (level == TRT_ET_LOG_ERROR) log(LogLevel::error, "TensorRT: %.230s", text);
  if (level == TRT_ET_LOG_WARNING) log(LogLevel::info, "TensorRT warns: %.220s", text);
  if (level == TRT_ET_LOG_INFO) log(LogLevel::debug, "TensorRT: %.230s", text);
  if (level == TRT_ET_LOG_NOTICE) log_at_once("TensorRTBackend: %.230s", text);
}

const trt_et_host& host() {
  static const auto* packages = new std::string(executorch_packages());
  static const trt_et_host table = {TRT_ET_PROVIDER_ABI, sizeof(trt_et_host), log_of_provider,
                                    packages->c_str()};
  return table;
}

Status open_file(const std::string& path, const trt_et_engine_provider** provider) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return fail(Error::NotSupported, "provider library does not load: %.150s", dlerror());
  }
  const auto open =
      reinterpret_cast<trt_et_open_provider_function>(dlsym(handle, TRT_ET_OPEN_PROVIDER));
  *provider = open == nullptr ? nullptr : complete(open(&host()));
  if (*provider != nullptr) return {};
  dlclose(handle);
  return fail(Error::NotSupported, "%.120s is of another trt-et: build it again", path.c_str());
}

Status find_and_open(const std::string& name, const trt_et_engine_provider** provider) {
  for (const std::string& folder : folders()) {
    const std::string path = folder + "/" + name;
    if (access(path.c_str(), R_OK) == 0) return open_file(path, provider);
  }
  return fail(Error::NotFound, "no %s next to the plugin or in TRT_ET_PROVIDER_PATH", name.c_str());
}

struct Opened {
  std::mutex mutex;
  std::map<std::string, const trt_et_engine_provider*> providers;
};

}  // namespace

std::string plan_version(const void* engine, size_t size) {
  constexpr size_t kVersionAt = 24;
  const auto* bytes = static_cast<const unsigned char*>(engine);
  if (size < kVersionAt + 4) return "";
  const bool enterprise = std::memcmp(bytes, "ftrt", 4) == 0;
  const bool rtx = std::memcmp(bytes, "vtrt", 4) == 0;
  uint32_t layout = 0;
  std::memcpy(&layout, bytes + 4, sizeof layout);
  const int major = bytes[kVersionAt];
  if (layout != 0 || (!enterprise && !rtx) || (enterprise ? major < 8 : major != 1)) return "";
  std::string version = std::to_string(major);
  for (size_t i = 1; i < 4; ++i) version += "." + std::to_string(bytes[kVersionAt + i]);
  return version;
}

std::vector<std::string> provider_libraries(const std::string& builder,
                                            const std::string& version) {
  const std::string major = version.substr(0, version.find('.'));
  if (builder == "tensorrt_rtx" || major == "1") return {library_name("rtx")};
  const bool known =
      !major.empty() && major.size() <= 3 && major.find_first_not_of("0123456789") == major.npos;
  if (known) return {library_name(major)};
  std::vector<std::string> names;
  for (const char* candidate : kEnterpriseMajors) {
    names.push_back(library_name(candidate));
  }
  return names;
}

std::vector<std::string> building_libraries(const std::string& build_with) {
  std::vector<std::string> names;
  if (build_with != "tensorrt_rtx") names = {library_name("11"), library_name("10")};
  if (build_with != "tensorrt") names.push_back(library_name("rtx"));
  return names;
}

Status open_provider_library(const std::string& name, const trt_et_engine_provider** provider) {
  auto& all = immortal<Opened>();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.providers.find(name);
  if (found != all.providers.end()) {
    *provider = found->second;
    return {};
  }
  TRT_ET_TRY(find_and_open(name, provider));
  all.providers[name] = *provider;
  cuda::note_opened_library();
  return {};
}

void save_kernels() {
  auto& all = immortal<Opened>();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& [name, provider] : all.providers) {
    if (provider->save_kernels != nullptr) (void)provider->save_kernels();
  }
}

}  // namespace trt_et
