#include "named_weights.h"

#include <exception>

namespace trt_et {

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
    buffers_.push_back(std::move(data.get()));
    weight.bytes = buffers_.back().data();
    weight.size = buffers_.back().size();
  }
  return {};
}

}  // namespace trt_et
