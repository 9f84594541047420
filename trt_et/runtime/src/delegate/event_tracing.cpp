#include "event_tracing.h"

#include <executorch/runtime/core/event_tracer_hooks_delegate.h>
#include <executorch/runtime/platform/clock.h>
#include <executorch/runtime/platform/platform.h>

#include <cstring>
#include <string>
#include <string_view>

namespace trt_et {
namespace {

using executorch::runtime::EventTracer;

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

void trace_value(const char* name, const executorch::runtime::etensor::Tensor& value) {
  using executorch::runtime::EventTracerDebugLogLevel;
  if (t_tracer == nullptr ||
      t_tracer->event_tracer_debug_level() < EventTracerDebugLogLevel::kIntermediateOutputs) {
    return;
  }
  executorch::runtime::event_tracer_log_output_delegate(t_tracer, name, kNamed, value);
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

}  // namespace trt_et
