#include "library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "common/immortal.h"

namespace trt_et::tensorrt {
namespace {

// The lean library runs the engines that were built version-compatible, and nothing else.
std::vector<std::string> library_names() {
  const std::string major = std::to_string(kMajor);
  if (kRtx) return {"libtensorrt_rtx.so." + major};
  return {"libnvinfer.so." + major, "libnvinfer_lean.so." + major};
}

// The loader's path, and the folders of pip's packages.
std::vector<std::string> search_folders() {
  std::vector<std::string> folders = {""};
  const std::string packages = host().site_packages;
  if (packages.empty()) return folders;
  for (const char* folder :
       {"tensorrt_libs", "tensorrt_rtx_libs", "tensorrt_lean_libs", "nvidia/tensorrt/lib"}) {
    folders.push_back(packages + "/" + folder + "/");
  }
  return folders;
}

// dlopen()'s reason, unless it is that the file itself is not there.
void keep_reason(const std::string& path, std::string* reason) {
  const char* error = dlerror();
  const std::string text = error == nullptr ? "" : error;
  const bool absent =
      text.rfind(path + ": cannot open", 0) == 0 && text.find("No such file") != std::string::npos;
  if (reason->empty() && !absent) *reason = text;
}

// `reason`: why a library that is there does not load.
void* open_any(std::string* path, std::string* reason) {
  for (const std::string& name : library_names()) {
    for (const std::string& folder : search_folders()) {
      *path = folder + name;
      if (void* handle = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
      keep_reason(*path, reason);
    }
  }
  return nullptr;
}

Version version_of(int32_t number) { return {number / 10000, number % 10000 / 100, number % 100}; }

bool has_known_interface(const Version& version) {
  return version.major == kMajor && version.minor >= kFirstMinor;
}

// TensorRT-RTX starts with the version number of any headers, and what is called through the tables
// of another interface crashes: the library is asked before anything of it is used.
Status check_interface(const Library& library) {
  const char* anyway = host().variable("TRT_ET_ANY_TENSORRT");
  if (has_known_interface(library.version) || (anyway != nullptr && *anyway == '1')) return {};
  return fail(
      Error::NotFound,
      "%s %s has an unknown interface (known: %d.%d to %d.%d and later %d.x): install one of "
      "these, or set TRT_ET_ANY_TENSORRT=1, which may crash: %.60s",
      kRtx ? "TensorRT-RTX" : "TensorRT", library.version.text().c_str(), kMajor, kFirstMinor,
      kMajor, kLastMinor, kMajor, library.path.c_str());
}

Status read_library(void* handle, Library* library) {
  using VersionFunction = int32_t (*)();
  const auto version = reinterpret_cast<VersionFunction>(dlsym(handle, "getInferLibVersion"));
  library->create_runtime = reinterpret_cast<decltype(library->create_runtime)>(
      dlsym(handle, "createInferRuntime_INTERNAL"));
  if (version == nullptr || library->create_runtime == nullptr) {
    return fail(Error::NotFound, "not a TensorRT library: %.180s", library->path.c_str());
  }
  Dl_info file{};
  if (dladdr(reinterpret_cast<void*>(library->create_runtime), &file) != 0) {
    library->path = file.dli_fname;
  }
  library->plugin_registry =
      reinterpret_cast<decltype(library->plugin_registry)>(dlsym(handle, "getPluginRegistry"));
  library->create_builder = reinterpret_cast<decltype(library->create_builder)>(
      dlsym(handle, "createInferBuilder_INTERNAL"));
  const auto build = reinterpret_cast<VersionFunction>(dlsym(handle, "getInferLibBuildVersion"));
  if (build != nullptr) library->build = std::to_string(build());
  library->version_number = version();
  library->version = version_of(library->version_number);
  return check_interface(*library);
}

Status find_library(Library* library) {
  const char* named = host().variable("TRT_ET_TENSORRT_LIBRARY");
  void* handle = nullptr;
  std::string reason;
  if (named != nullptr && *named != '\0') {
    library->path = named;
    handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      return fail(Error::NotFound, "TRT_ET_TENSORRT_LIBRARY does not load: %.180s", dlerror());
    }
  } else {
    handle = open_any(&library->path, &reason);
  }
  if (handle == nullptr && !reason.empty()) {
    return fail(Error::NotFound, "%s %d does not load: %.180s", kName, kMajor, reason.c_str());
  }
  if (handle == nullptr) {
    return fail(Error::NotFound,
                "no %s %d: %s not found; install it, or set TRT_ET_TENSORRT_LIBRARY", kName, kMajor,
                library_names().front().c_str());
  }
  Status result = read_library(handle, library);
  if (!result.ok()) dlclose(handle);
  return result;
}

struct State {
  std::mutex mutex;
  bool opened = false;
  Status result;
  Library library;
  Logger logger;
  // By device, DLA core, and whether code of engines may run on the host.
  std::map<std::tuple<int, int, bool>, std::weak_ptr<Runtime>> runtimes;
  std::set<std::string> plugin_libraries;  // that are loaded
};

// Loads one library and registers its plugins: those that register themselves, those of
// libnvinfer_plugin, and those of the newer interface.
Status load_plugins(const std::string& path, const Library& library, State* all) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return fail(Error::NotFound, "plugin library does not load: %.190s", dlerror());
  }
  using Initialize = bool (*)(void*, const char*);
  const auto initialize = reinterpret_cast<Initialize>(dlsym(handle, "initLibNvInferPlugins"));
  Logger::forget();
  if (initialize != nullptr && !initialize(&all->logger, "")) {
    return fail(Error::InvalidState, "initLibNvInferPlugins of %.80s fails: %.100s", path.c_str(),
                Logger::reason_text());
  }
  const bool has_creators =
      dlsym(handle, "getCreators") != nullptr || dlsym(handle, "getPluginCreators") != nullptr;
  if (initialize == nullptr && has_creators) {
    void* registry = library.plugin_registry == nullptr ? nullptr : library.plugin_registry();
    if (registry == nullptr ||
        slots::PluginRegistry_loadLibrary::call(registry, path.c_str()) == nullptr) {
      return fail(Error::InvalidState, "TensorRT refuses the plugin library %.80s: %.100s",
                  path.c_str(), registry == nullptr ? "it has no plugins" : Logger::reason_text());
    }
  }
  return {};
}

Status load_plugin_libraries(const char* paths, const Library& library, State* all) {
  for (const char* begin = paths; *begin != '\0';) {
    const std::string path(begin, std::strcspn(begin, ":"));
    begin += path.size() + (begin[path.size()] == ':' ? 1 : 0);
    if (all->plugin_libraries.count(path) > 0) continue;
    TRT_ET_TRY(load_plugins(path, library, all));
    all->plugin_libraries.insert(path);
  }
  return {};
}

Status set_up(nvinfer1::IRuntime* runtime, const trt_et_engine_request& request,
              const Library& library) {
  if (request.engine_host_code != 0) runtime->setEngineHostCodeAllowed(true);
  if (request.dla_core < 0) return {};
  const int cores = runtime->getNbDLACores();
  if (request.dla_core >= cores) {
    return fail(Error::NotSupported,
                "dla_core is %d, but TensorRT %s finds %d DLA core(s) on cuda:%d%s",
                request.dla_core, library.version.text().c_str(), cores, request.device,
                cores > 0      ? ""
                : kMajor == 11 ? " (TensorRT 11.0 to 11.3 have no DLA)"
                               : "");
  }
  runtime->setDLACore(request.dla_core);
  return {};
}

bool has_any(const char* text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return std::strstr(text, word) != nullptr; });
}

bool tells_of_memory(const char* text) {
  return has_any(text, {"out of memory", "OutOfMemory", "Out of memory", "GPU memory (",
                        "insufficient memory"});
}

}  // namespace

bool Logger::lacks_memory() { return tells_of_memory(reason().c_str()); }

bool Logger::lacks_plugin() {
  return has_any(reason().c_str(), {"Cannot find plugin", "could not find plugin",
                                    "Plugin not found", "plugin creator"});
}

ThreadText& Logger::reason() {
  static thread_local ThreadText text;
  return text;
}

void Logger::log(Severity severity, const char* text) noexcept {
  const int level = severity <= Severity::kERROR     ? TRT_ET_LOG_ERROR
                    : severity == Severity::kWARNING ? TRT_ET_LOG_WARNING
                    : severity == Severity::kINFO    ? TRT_ET_LOG_INFO
                                                     : TRT_ET_LOG_DEBUG;
  try {
    const bool better = reason().empty() || (tells_of_memory(text) && !lacks_memory());
    if (level == TRT_ET_LOG_ERROR && better) reason() = text;
    host().log(level, text);
  } catch (...) {  // No memory for the text: nothing is lost that could be said.
  }
}

std::vector<std::string> library_folders(const Library& library) {
  std::vector<std::string> folders = search_folders();
  folders.insert(folders.begin(), library.path.substr(0, library.path.rfind('/') + 1));
  return folders;
}

Status load_plugin_libraries(const trt_et_engine_request& request, const Library& library) {
  auto& all = immortal<State>();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return load_plugin_libraries(request.plugin_libraries, library, &all);
}

Logger& logger() { return immortal<State>().logger; }

Status open_library(const Library** library) {
  auto& all = immortal<State>();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.opened) {
    all.result = find_library(&all.library);
    all.opened = true;
  }
  *library = &all.library;
  return all.result;
}

Status runtime_of(const trt_et_engine_request& request, std::shared_ptr<Runtime>* runtime) {
  const Library* library = nullptr;
  TRT_ET_TRY(open_library(&library));
  auto& all = immortal<State>();
  const std::lock_guard<std::mutex> lock(all.mutex);
  TRT_ET_TRY(load_plugin_libraries(request.plugin_libraries, *library, &all));
  auto& known = all.runtimes[{request.device, request.dla_core, request.engine_host_code != 0}];
  *runtime = known.lock();
  if (*runtime != nullptr) return {};
  auto created = std::make_shared<Runtime>();
  Logger::forget();
  void* started = library->create_runtime(&all.logger, library->version_number);
  // Where TensorRT cannot reach CUDA it says so, and returns a pointer that must not be touched.
  if (started == nullptr || !Logger::reason().empty()) {
    return fail(Error::InvalidState, "TensorRT %s does not start on cuda:%d: %.150s",
                library->version.text().c_str(), request.device, Logger::reason_text());
  }
  created->runtime.reset(static_cast<nvinfer1::IRuntime*>(started));
  TRT_ET_TRY(set_up(created->runtime.get(), request, *library));
  known = created;
  *runtime = std::move(created);
  return {};
}

}  // namespace trt_et::tensorrt
