#include "event_tracing.h"

#include <executorch/runtime/core/event_tracer_hooks_delegate.h>
#include <executorch/runtime/platform/clock.h>
#include <executorch/runtime/platform/platform.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

namespace trt_et {
namespace {

using executorch::runtime::EventTracer;
using executorch::runtime::Span;
using executorch::runtime::etensor::TensorImpl;

thread_local EventTracer* t_tracer = nullptr;

// ExecuTorch's tracer wants this id exactly where an event has a name.
constexpr auto kNamed =
    static_cast<executorch::runtime::DebugHandle>(executorch::runtime::kUnsetDelegateDebugIntId);

// The call that a layer comes from, which the program's debug handles have: "linear_0" for
// "[MATRIX_MULTIPLY]-[aten_ops.linear.default]-[linear_0_matrix_multiply]", of Torch-TensorRT's
// converters; of several, fused ones, the first. Other layers have their own names.
std::string call_of(std::string_view layer) {
  const auto operation = layer.find("_ops.");
  const auto start = operation == layer.npos ? layer.npos : layer.find("]-[", operation);
  std::string_view name = start == layer.npos ? layer : layer.substr(start + 3);
  name = name.substr(0, name.find(']'));
  for (auto at = name.find('_', 1); at < name.npos; at = name.find('_', at + 1)) {
    auto end = name.find_first_not_of("0123456789", at + 1);
    if (end == name.npos) end = name.size();
    if (end > at + 1 && (end == name.size() || name[end] == '_')) {
      return std::string(name.substr(0, end));
    }
  }
  return std::string(layer);
}

// A result in host memory, where the tracer takes such values.
void trace_value(const char* name, const executorch::runtime::etensor::Tensor& value) {
  using executorch::runtime::EventTracerDebugLogLevel;
  if (t_tracer == nullptr ||
      t_tracer->event_tracer_debug_level() < EventTracerDebugLogLevel::kIntermediateOutputs) {
    return;
  }
  executorch::runtime::event_tracer_log_output_delegate(t_tracer, name, kNamed, value);
}

}  // namespace

TraceScope::TraceScope(EventTracer* tracer) : previous_(t_tracer) { t_tracer = tracer; }

TraceScope::~TraceScope() { t_tracer = previous_; }

TraceEvent::TraceEvent(const char* name) : tracer_(t_tracer) {
  if (tracer_ == nullptr) return;
  entry_ = executorch::runtime::event_tracer_start_profiling_delegate(tracer_, name, kNamed);
}

TraceEvent::~TraceEvent() {
  executorch::runtime::event_tracer_end_profiling_delegate(tracer_, entry_);
}

void LayerEvents::begin() { next_ = executorch::runtime::pal_current_ticks(); }

void LayerEvents::report(void* events, const char* layer, float ms) {
  auto& next = static_cast<LayerEvents*>(events)->next_;
  const auto ratio = et_pal_ticks_to_ns_multiplier();
  const double ticks =
      1e6 * ms * static_cast<double>(ratio.denominator) / static_cast<double>(ratio.numerator);
  const auto start = next;
  next += static_cast<et_timestamp_t>(ticks);
  executorch::runtime::event_tracer_log_profiling_delegate(t_tracer, call_of(layer).c_str(), kNamed,
                                                           start, next, layer, std::strlen(layer));
}

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
