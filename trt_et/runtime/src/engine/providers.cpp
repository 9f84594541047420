// Which provider loads an engine, and the refusals where none can.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>

#include "common/immortal.h"
#include "cuda/cuda_api.h"
#include "cuda/simulation_library.h"
#include "engine.h"
#include "provider_library.h"

namespace trt_et {
namespace {

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

struct Added {
  std::mutex mutex;
  std::vector<const trt_et_engine_provider*> providers;
};

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

// The reason to tell if no provider builds a network: of a TensorRT that is here, if there is one.
void keep_first_reason(const Status& refusal, Status* reason) {
  if (reason->ok() || (reason->error == Error::NotFound && refusal.error != Error::NotFound)) {
    *reason = refusal;
  }
}

// On simulated GPUs without a fake TensorRT, onnxruntime runs networks.
Status find_tensorrt(const cuda::Api& api, const Blob& blob, const trt_et_engine_request& request,
                     const std::string& build_with, const trt_et_engine_provider** provider) {
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
       blob.is_network() ? building_libraries(build_with)
                         : provider_libraries(blob.metadata.builder, version_of(blob))) {
    const trt_et_engine_provider* candidate = nullptr;
    const Status opened = open_provider_library(name, &candidate);
    if (!opened.ok()) {
      if (opened.error != Error::NotFound) return opened;
    } else if (ask(*candidate, request, provider, &status) && (status.ok() || !blob.is_network())) {
      return status;
    } else if (blob.is_network()) {
      keep_first_reason(status, &reason);
    }
  }
  status = blob.is_network() ? reason : status;
  std::vector<const trt_et_engine_provider*> candidates;
  {
    auto& all = immortal<Added>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    candidates = all.providers;
  }
  for (const trt_et_engine_provider* candidate : candidates) {
    if (ask(*candidate, request, provider, &status)) return status;
  }
  if (!status.ok()) return status;
  return fail(Error::NotSupported,
              "engine for %s: this build of trt-et has no engine provider for it (docs/native.md)",
              builder_of(blob).c_str());
}

}  // namespace

const trt_et_engine_provider* complete(const trt_et_engine_provider* provider) {
  constexpr size_t kRequired = offsetof(trt_et_engine_provider, memory_size);
  if (provider == nullptr || provider->abi != TRT_ET_PROVIDER_ABI ||
      provider->struct_size < kRequired) {
    return nullptr;
  }
  if (provider->struct_size >= sizeof *provider) return provider;
  static auto* tables = new std::map<const void*, trt_et_engine_provider>;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  trt_et_engine_provider& table = (*tables)[provider];
  std::memcpy(&table, provider, provider->struct_size);
  return &table;
}

Status add_provider(const trt_et_engine_provider* provider) {
  const trt_et_engine_provider* table = complete(provider);
  if (table == nullptr) {
    return fail(Error::InvalidArgument, "provider is of ABI %u and %u bytes, expected ABI %u",
                provider == nullptr ? 0 : provider->abi,
                provider == nullptr ? 0 : provider->struct_size, TRT_ET_PROVIDER_ABI);
  }
  auto& all = immortal<Added>();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (std::find(all.providers.begin(), all.providers.end(), table) == all.providers.end()) {
    all.providers.push_back(table);
  }
  return {};
}

Status find_provider(const Blob& blob, const trt_et_engine_request& request,
                     const std::string& build_with, const trt_et_engine_provider** provider) {
  cuda::Api* api = nullptr;
  int count = 0;
  const int device = request.device;
  const Status usable = cuda::usable_devices(&api, &count);
  if (!usable.ok()) {
    if (usable.error == Error::InvalidArgument) return usable;  // A bad TRT_ET_CUDA.
    if (blob.is_reference()) {
      return fail(Error::NotFound, "reference engine on cuda:%d needs TRT_ET_CUDA=simulated:N: %s",
                  device, usable.text.c_str());
    }
    return fail(Error::NotFound, "engine for %s on cuda:%d needs an NVIDIA driver: %s",
                builder_of(blob).c_str(), device, usable.text.c_str());
  }
  if (device >= count) {
    return fail(Error::NotFound, "engine is for cuda:%d but this machine has %d GPU(s)", device,
                count);
  }
  if (blob.is_reference()) return find_reference(provider);
  return find_tensorrt(*api, blob, request, build_with, provider);
}

}  // namespace trt_et
