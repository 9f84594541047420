#include "event_tracing.h"

#include <executorch/runtime/core/event_tracer_hooks_delegate.h>
#include <executorch/runtime/platform/clock.h>
#include <executorch/runtime/platform/platform.h>

namespace trt_et {
namespace {

using executorch::runtime::EventTracer;

thread_local EventTracer* t_tracer = nullptr;

// ExecuTorch's tracer wants this id exactly where an event has a name.
constexpr auto kNamed =
    static_cast<executorch::runtime::DebugHandle>(executorch::runtime::kUnsetDelegateDebugIntId);

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
  executorch::runtime::event_tracer_log_profiling_delegate(t_tracer, layer, kNamed, start, next);
}

}  // namespace trt_et
