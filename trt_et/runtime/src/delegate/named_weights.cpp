#include "named_weights.h"

#include <charconv>
#include <exception>

#include "blob/crc32c.h"

namespace trt_et {
namespace {

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

NamedWeights::NamedWeights(const executorch::runtime::NamedDataMap* named_data,
                           const std::vector<std::string>& keys)
    : named_data_(named_data) {
  for (const std::string& key : keys) weights_.push_back({key.c_str(), nullptr, 0});
}

void NamedWeights::add_to(trt_et_engine_request* request) {
  request->weights = weights_.data();
  request->weight_count = weights_.size();
  request->reader = this;
  request->read_weights = [](const trt_et_engine_request* asked) -> const char* {
    auto& weights = *static_cast<NamedWeights*>(asked->reader);
    try {
      const Status status = weights.read();
      if (status.ok()) return nullptr;
      weights.problem_ = status.text;
      return weights.problem_.c_str();
    } catch (const std::exception&) {
      return "no host memory for the weights";
    }
  };
}

Status NamedWeights::read() {
  buffers_.reserve(weights_.size());
  for (size_t i = buffers_.size(); i < weights_.size(); ++i) {
    trt_et_weight& weight = weights_[i];
    if (named_data_ == nullptr) {
      return fail(Error::InvalidProgram, "the program has no named data, and the network needs %s",
                  weight.name);
    }
    auto data = named_data_->get_data(weight.name);
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

}  // namespace trt_et
