#include "event_tracing.h"

#include <executorch/runtime/core/event_tracer_hooks_delegate.h>

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

}  // namespace trt_et
