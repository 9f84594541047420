// Which provider loads an engine, and the refusals where none can. TensorRT's are libraries, one
// per major, which are opened when an engine needs them.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

#include "common/immortal.h"
#include "common/log.h"
#include "common/process.h"
#include "cuda/cuda_api.h"
#include "cuda/simulation_library.h"
#include "engine.h"

namespace trt_et {
namespace {

std::string library_name(const std::string& which) { return "libtrt_et_tensorrt_" + which + ".so"; }

// TensorRT's verbose lines, a hundred for each engine, are dropped.
void log_of_provider(int level, const char* text) {
  if (level == TRT_ET_LOG_ERROR) log(LogLevel::error, "TensorRT: %.230s", text);
  if (level == TRT_ET_LOG_WARNING) log(LogLevel::info, "TensorRT warns: %.220s", text);
  if (level == TRT_ET_LOG_INFO) log(LogLevel::debug, "TensorRT: %.230s", text);
  if (level == TRT_ET_LOG_NOTICE) log_at_once("TensorRTBackend: %.230s", text);
  if (level == TRT_ET_LOG_OWN) log(LogLevel::info, "TensorRTBackend: %.230s", text);
}

const trt_et_host& host() {
  static const auto* packages = new std::string(executorch_packages());
  static const trt_et_host table = {TRT_ET_PROVIDER_ABI, TRT_ET_VERSION, log_of_provider,
                                    packages->c_str(), environment_variable};
  return table;
}

Status open_file(const std::string& path, const trt_et_engine_provider** provider) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return fail(Error::NotSupported, "provider library does not load: %.150s", dlerror());
  }
  const auto open =
      reinterpret_cast<trt_et_open_provider_function>(dlsym(handle, TRT_ET_OPEN_PROVIDER));
  *provider = open == nullptr ? nullptr : open(&host());
  if (*provider != nullptr) return {};
  dlclose(handle);
  return fail(Error::NotSupported, "%.120s is of another trt-et: build it again", path.c_str());
}

struct Opened {
  std::mutex mutex;
  std::map<std::string, const trt_et_engine_provider*> providers;
};

// File names to try, the likeliest first; several where the blob does not say what built it.
std::vector<std::string> provider_libraries(const std::string& builder,
                                            const std::string& version) {
  const std::string major = version.substr(0, version.find('.'));
  if (builder == "tensorrt_rtx" || major == "1") return {library_name("rtx")};
  const bool known =
      !major.empty() && major.size() <= 3 && major.find_first_not_of("0123456789") == major.npos;
  // The next one runs version-compatible engines.
  if (major == "8") return {library_name("8"), library_name("10")};
  if (major == "10") return {library_name("10"), library_name("11")};
  if (known) return {library_name(major)};
  return {library_name("11"), library_name("10")};
}

// The same for a network, of which any TensorRT that has a parser builds an engine.
std::vector<std::string> building_libraries() {
  return {library_name("11"), library_name("10"), library_name("rtx")};
}

// Opens a library by its name next to the plugin, once. NotFound where there is none. Only after
// the driver has been asked.
Status open_provider_library(const std::string& name, const trt_et_engine_provider** provider) {
  auto& all = immortal<Opened>();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.providers.find(name);
  if (found != all.providers.end()) return *provider = found->second, Status{};
  const std::string path = beside_plugin(name);
  if (access(path.c_str(), R_OK) != 0) {
    return fail(Error::NotFound, "no %s next to the plugin", name.c_str());
  }
  TRT_ET_TRY(open_file(path, provider));
  all.providers[name] = *provider;
  cuda::note_opened_library();
  return {};
}

// The blob's, or else the engine's own.
std::string version_of(const Blob& blob) {
  const std::string& recorded = blob.metadata.library_version;
  if (blob.is_network()) return "";
  return recorded.empty() ? plan_version(blob.engine, blob.engine_size) : recorded;
}

// "tensorrt_rtx 1.5.0.114", or what is known of a foreign engine.
std::string builder_of(const Blob& blob) {
  const Metadata& metadata = blob.metadata;
  const std::string version = version_of(blob).substr(0, 24);
  std::string name = metadata.builder.empty() ? "TensorRT" : metadata.builder.substr(0, 24);
  return version.empty() ? name : name + " " + version;
}

Status find_reference(const trt_et_engine_provider** provider) {
  const cuda::Simulation* simulation = cuda::simulation();
  if (simulation == nullptr) {
    return {Error::NotSupported,
            "reference engines run on simulated GPUs only: set TRT_ET_CUDA=simulated:N, or export "
            "with builder=\"tensorrt_rtx\""};
  }
  *provider = simulation->reference_provider;
  return {};
}

// Asks one provider. True when the search is over: it takes the engine, or refuses it for a reason
// that the user must hear. `status` keeps the last refusal.
bool ask(const trt_et_engine_provider& candidate, const trt_et_engine_request& request,
         const trt_et_engine_provider** provider, Status* status) {
  const auto error = static_cast<Error>(candidate.probe(&request));
  if (error == Error::Ok) {
    *provider = &candidate;
    *status = Status{};
    return true;
  }
  const char* text = candidate.last_error();
  *status = fail(error, "%s", text == nullptr || *text == '\0' ? candidate.name : text);
  return error != Error::NotFound;
}

// The reason to tell if no provider takes the engine: of a TensorRT that is here, if there is one.
void keep_first_reason(const Status& refusal, Status* reason) {
  if (reason->ok() || (reason->error == Error::NotFound && refusal.error != Error::NotFound)) {
    *reason = refusal;
  }
}

// On simulated GPUs without a fake TensorRT, onnxruntime runs networks.
Status find_tensorrt(const cuda::Api& api, const Blob& blob, const trt_et_engine_request& request,
                     const trt_et_engine_provider** provider) {
  if (api.simulated() && !cuda::simulation()->attach_fake()) {
    if (blob.is_network()) {
      Status status;
      (void)ask(*cuda::simulation()->onnx_provider, request, provider, &status);
      return status;
    }
    return fail(Error::NotSupported,
                "real %s engine cannot run on simulated GPUs; export with builder=\"reference\"",
                blob.metadata.builder.empty() ? "TensorRT" : blob.metadata.builder.c_str());
  }
  Status status, reason;
  for (const std::string& name :
       blob.is_network() ? building_libraries()
                         : provider_libraries(blob.metadata.builder, version_of(blob))) {
    const trt_et_engine_provider* candidate = nullptr;
    const Status opened = open_provider_library(name, &candidate);
    if (!opened.ok()) {
      if (opened.error != Error::NotFound) return opened;
    } else if (ask(*candidate, request, provider, &status) && (status.ok() || !blob.is_network())) {
      return status;
    } else {
      keep_first_reason(status, &reason);
    }
  }
  if (!reason.ok()) return reason;
  return fail(
      Error::NotSupported,
      "engine for %s: this build of trt-et has no engine provider for it: TensorRT 10, 11 and "
      "TensorRT-RTX have one",
      builder_of(blob).c_str());
}

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

Status find_provider(const Blob& blob, const trt_et_engine_request& request,
                     const trt_et_engine_provider** provider) {
  cuda::Api* api = nullptr;
  int count = 0;
  const int device = request.device;
  const cuda::Access access = blob.is_reference() ? cuda::access_for_reference : cuda::access;
  const Status usable = cuda::usable_devices(&api, &count, access);
  if (!usable.ok()) {
    if (usable.error != Error::NotFound) return usable;  // A bad TRT_ET_CUDA, or a forked child.
    if (blob.is_reference()) {
      return fail(Error::NotFound, "reference engine on cuda:%d: %s%s", device, usable.text.c_str(),
                  cuda::remedy().c_str());
    }
    return fail(Error::NotFound, "engine for %s on cuda:%d needs an NVIDIA driver: %s",
                builder_of(blob).c_str(), device, usable.text.c_str());
  }
  if (device >= count) {
    return fail(Error::NotFound, "engine is for cuda:%d but this machine has %d GPU(s)", device,
                count);
  }
  if (blob.is_reference()) return find_reference(provider);
  return find_tensorrt(*api, blob, request, provider);
}

// Files are written: other threads may load meanwhile.
void save_kernels() {
  std::map<std::string, const trt_et_engine_provider*> opened;
  {
    auto& all = immortal<Opened>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    opened = all.providers;
  }
  for (const auto& [name, provider] : opened) {
    if (provider->save_kernels != nullptr) (void)provider->save_kernels();
  }
}

}  // namespace trt_et
