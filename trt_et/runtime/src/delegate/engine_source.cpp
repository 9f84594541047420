#include "engine_source.h"

#include <charconv>
#include <exception>

#include "blob/crc32c.h"
#include "common/log.h"
#include "engine/compatibility.h"

namespace trt_et {

using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;

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

// A name may end with "_" and the CRC-32C of the bytes (8 hex digits).
bool has_checksum(const std::string& name, uint32_t* checksum) {
  constexpr size_t kDigits = 8;
  if (name.size() <= kDigits || name[name.size() - kDigits - 1] != '_') return false;
  const char* const begin = name.data() + name.size() - kDigits;
  const char* const end = name.data() + name.size();
  const auto [read, error] = std::from_chars(begin, end, *checksum, 16);
  return error == std::errc() && read == end;
}

Status check_weight(const trt_et_weight& weight) {
  uint32_t checksum = 0;
  if (!has_checksum(weight.name, &checksum) || crc32c(0, weight.bytes, weight.size) == checksum) {
    return {};
  }
  return fail(Error::InvalidProgram, "weight %.100s of %zu bytes is damaged", weight.name,
              weight.size);
}

}  // namespace

Status EngineSource::open(const void* bytes, size_t size, FindData find_data,
                          const LoadOptions& options) {
  TRT_ET_TRY(parse_blob(bytes, size, &blob_));
  find_data_ = std::move(find_data);
  TRT_ET_TRY(find_external_engine());
  TRT_ET_TRY(choose_device(blob_, options, &device_));
  request_ = make_request(blob_, device_, options, &bindings_, &opt_dims_);
  for (const std::string& key : blob_.metadata.weights)
    weights_.push_back({key.c_str(), nullptr, 0});
  request_.weights = weights_.data();
  request_.weight_count = weights_.size();
  request_.reader = this;
  request_.read_weights = [](const trt_et_engine_request* asked) -> const char* {
    auto& source = *static_cast<EngineSource*>(asked->reader);
    try {
      const Status status = source.read_weights();
      if (status.ok()) return nullptr;
      source.problem_ = status.text;
      return source.problem_.c_str();
    } catch (const std::exception&) {
      return "no host memory for the weights";
    }
  };
  TRT_ET_TRY(find_provider(blob_, request_, &provider_));
  return cuda::access(&api_);
}

Status EngineSource::find_external_engine() {
  if (!blob_.is_external()) return {};
  const std::string name = blob_.metadata.engine_key;
  const char* const key = name.c_str();
  auto data = find_data_ == nullptr ? Result<FreeableBuffer>(Error::NotFound) : find_data_(key);
  if (!data.ok()) {
    return fail(data.error(),
                "the engine '%.60s' is in a file of its own beside the program (.ptd): load the "
                "program with the file of its export (data_path; executor_runner --data_path)",
                key);
  }
  external_.emplace(std::move(data.get()));
  auto front = find_data_((name + "_front").c_str());
  if (!front.ok() && blob_.has_checksum) {
    return fail(Error::InvalidProgram,
                "the engine '%.60s' in the .ptd file has no checksum: the file is damaged", key);
  }
  if (!front.ok()) {  // Torch-TensorRT's. Nothing says which engine it is: it is not shared.
    blob_.engine = static_cast<const uint8_t*>(external_->data());
    blob_.engine_size = external_->size();
    return {};
  }
  Blob found;
  const Status status =
      parse_blob(front->data(), front->size(), external_->data(), external_->size(), &found);
  if (!status.ok()) {
    return fail(status.error, "the engine '%.60s' in the .ptd file: %s", key, status.text.c_str());
  }
  if (!have_same_interface(found.metadata, blob_.metadata)) {
    return fail(Error::InvalidProgram,
                "the engine '%.60s' in the .ptd file has other inputs or outputs than the program: "
                "take the file of this program's export",
                key);
  }
  // Memory is planned for the program's GPU.
  found.metadata.device_id_state = blob_.metadata.device_id_state;
  found.metadata.device_id = blob_.metadata.device_id;
  blob_ = std::move(found);
  return {};
}

Status EngineSource::read_weights() {
  buffers_.reserve(weights_.size());
  for (size_t i = buffers_.size(); i < weights_.size(); ++i) {
    trt_et_weight& weight = weights_[i];
    if (find_data_ == nullptr) {
      return fail(Error::InvalidProgram, "the program has no named data, and the network needs %s",
                  weight.name);
    }
    auto data = find_data_(weight.name);
    if (!data.ok()) {
      return fail(data.error(), "the program has no usable named data %.100s (error 0x%x)",
                  weight.name, static_cast<unsigned>(data.error()));
    }
    weight.bytes = data->data();
    weight.size = data->size();
    TRT_ET_TRY(check_weight(weight));
    buffers_.push_back(std::move(data.get()));
  }
  return {};
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
    return Engine::load(*provider_, blob_, request_, engine);
  }
  *engine = Engine::find(*provider_, blob_, request_);
  if (*engine != nullptr) return {};
  trt_et_engine_request request = request_;
  for (BuiltEngine built, refused;; refused = std::move(built)) {
    request.refused = refused.owner.get();
    TRT_ET_TRY(build_engine(*provider_, request, &built));
    trt_et_engine_request of_engine = request_;
    of_engine.bytes = built.bytes;
    of_engine.size = built.size;
    Status status = Engine::load(*provider_, blob_, of_engine, engine);
    const bool is_refused = status.error == Error::DelegateInvalidCompatibility ||
                            status.error == Error::InvalidProgram;
    // Of the folder: the driver may have changed since, or a plugin library.
    if (!is_refused || *built.file == '\0' || request.refused != nullptr) return status;
    if (request.build == 0) {
      return fail(status.error, "build=0, and the built engine %.130s is refused: %s", built.file,
                  status.text.c_str());
    }
    log_at_once("TensorRTBackend: the built engine %.150s is refused, and will be built again: %s",
                built.file, status.text.c_str());
  }
}

Status EngineSource::build(BuiltEngine* built) const {
  if (!blob_.is_network() || provider_->build == nullptr) {
    return fail(Error::NotSupported, "%s builds no engine of what builder '%.40s' made",
                provider_->name, blob_.metadata.builder.c_str());
  }
  return build_engine(*provider_, request_, built);
}

}  // namespace trt_et
