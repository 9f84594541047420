#include "debug_outputs.h"

#include <algorithm>
#include <new>

#include "event_tracing.h"

namespace trt_et {

using executorch::runtime::Span;
using executorch::runtime::etensor::TensorImpl;

struct DebugOutputs::Result {
  std::string call;
  std::unique_ptr<uint8_t[]> memory;
  int32_t sizes[TRT_ET_MAX_RANK] = {};
  int32_t strides[TRT_ET_MAX_RANK] = {};
  uint8_t dim_order[TRT_ET_MAX_RANK] = {};
  std::unique_ptr<TensorImpl> tensor;
  EValue value;
};

Status DebugOutputs::create(const std::vector<Argument>& arguments) {
  for (const Argument& argument : arguments) {
    const TensorSpec& expected = argument.expected;
    if (expected.is_input) continue;
    if (expected.value_of.empty()) {
      if (!results_.empty()) {
        return fail(Error::InvalidProgram, "output '%.60s' comes after outputs for debugging",
                    expected.name.c_str());
      }
      ++program_outputs_;
      continue;
    }
    auto result = std::make_shared<Result>();
    result->call = expected.value_of;
    // Not cleared: a program may name a size that no run has, and memory is used when it is
    // written.
    result->memory.reset(new (std::nothrow) uint8_t[std::max<size_t>(expected.max_bytes, 1)]);
    if (result->memory == nullptr) {
      return fail(Error::MemoryAllocationFailed,
                  "no host memory for the %zu bytes of '%.60s', an output for debugging",
                  expected.max_bytes, expected.name.c_str());
    }
    int64_t stride = 1;
    for (size_t i = expected.max_shape.size(); i-- > 0;) {
      result->sizes[i] = static_cast<int32_t>(expected.max_shape[i]);
      result->strides[i] = static_cast<int32_t>(stride);
      result->dim_order[i] = static_cast<uint8_t>(i);
      stride *= std::max(result->sizes[i], 1);
    }
    result->tensor = std::make_unique<TensorImpl>(
        expected.dtype, static_cast<ssize_t>(expected.max_shape.size()), result->sizes,
        result->memory.get(), result->dim_order, result->strides,
        executorch::runtime::TensorShapeDynamism::DYNAMIC_BOUND);
    result->value = EValue(Tensor(result->tensor.get()));
    results_.push_back(std::move(result));
  }
  return {};
}

Span<EValue*> DebugOutputs::append_to(Span<EValue*> values) {
  if (results_.empty()) return values;
  values_.assign(values.begin(), values.end());
  for (const auto& result : results_) values_.push_back(&result->value);
  return {values_.data(), values_.size()};
}

// ExecuTorch's Inspector expects as many values in each event as the delegate has outputs; see
// trt_et/engine_program/debug_handles.py.
void DebugOutputs::log() const {
  for (const auto& result : results_) {
    for (size_t i = 0; i < program_outputs_; ++i) {
      trace_value(result->call.c_str(), result->value.toTensor());
    }
  }
}

}  // namespace trt_et
