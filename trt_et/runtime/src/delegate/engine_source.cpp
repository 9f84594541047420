#include "engine_source.h"

#include "common/log.h"
#include "engine/build_progress.h"
#include "engine/compatibility.h"

namespace trt_et {
namespace {

// The GPU to load for: the blob's, or the one that the user moves it to.
Status choose_device(const Blob& blob, const LoadOptions& options, int* device) {
  if (!options.device.has_value()) return device_of(blob, device);
  *device = *options.device;
  int recorded = 0;
  if (device_of(blob, &recorded).ok() && recorded != *device) {
    log(LogLevel::debug, "TensorRTBackend: engine for cuda:%d is moved to cuda:%d by option",
        recorded, *device);
  }
  return {};
}

}  // namespace

Status EngineSource::open(const void* bytes, size_t size,
                          const executorch::runtime::NamedDataMap* named_data,
                          const LoadOptions& options) {
  TRT_ET_TRY(parse_blob(bytes, size, &blob_));
  TRT_ET_TRY(choose_device(blob_, options, &device_));
  request_ = make_request(blob_, device_, options, &bindings_, &opt_dims_);
  weights_ = std::make_unique<NamedWeights>(named_data, blob_.metadata.weights);
  weights_->add_to(&request_);
  request_.report_build = build_progress();
  share_ = options.shared_engines;
  TRT_ET_TRY(find_provider(blob_, request_, options.build_with, &provider_));
  return cuda::access(&api_);
}

Status EngineSource::fit() {
  if (!blob_.is_reference()) TRT_ET_TRY(check_compatibility(*api_, blob_, device_));
  TRT_ET_TRY(api_->device_info(device_, &gpu_));
  request_.gpu = gpu_.name.c_str();
  request_.gpu_major = gpu_.major;
  request_.gpu_minor = gpu_.minor;
  return {};
}

Status EngineSource::load(std::shared_ptr<Engine>* engine) const {
  if (!blob_.is_network() || provider_->build == nullptr) {
    return Engine::load(*provider_, blob_, request_, share_, engine);
  }
  if (share_) *engine = Engine::find(*provider_, blob_, request_);
  if (*engine != nullptr) return {};
  return build([&](const void* bytes, size_t size) {
    trt_et_engine_request built = request_;
    built.bytes = bytes;
    built.size = size;
    return Engine::load(*provider_, blob_, built, share_, engine);
  });
}

Status EngineSource::build(
    const std::function<Status(const void* bytes, size_t size)>& take) const {
  if (!blob_.is_network() || provider_->build == nullptr) {
    return fail(Error::NotSupported, "%s builds no engine of what builder '%.40s' made",
                provider_->name, blob_.metadata.builder.c_str());
  }
  return build_engine(*provider_, request_, take);
}

}  // namespace trt_et
