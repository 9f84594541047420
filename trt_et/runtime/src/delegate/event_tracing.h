// What a delegate does, as events of ExecuTorch's event tracer: readable in an ETDump.
#pragma once

#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>

namespace trt_et {

// Events of this thread go to `tracer`, which may be null, as long as the scope lives.
class TraceScope {
 public:
  explicit TraceScope(executorch::runtime::EventTracer* tracer);
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
  ~TraceScope();

 private:
  executorch::runtime::EventTracer* const previous_;
};

// One event, from here to the end of the scope; nothing without a tracer. The times are the host's:
// work that is queued on a stream runs later.
class TraceEvent {
 public:
  explicit TraceEvent(const char* name);
  TraceEvent(const TraceEvent&) = delete;
  TraceEvent& operator=(const TraceEvent&) = delete;
  ~TraceEvent();

 private:
  executorch::runtime::EventTracer* const tracer_;
  executorch::runtime::EventTracerEntry entry_{};
};

// Logs the result of a call inside an engine, in host memory, where the tracer takes such values.
void trace_value(const char* name, const executorch::runtime::etensor::Tensor& value);

// The layers of an engine, as events of one run: reported one after another when the run is over,
// they stand behind each other in the trace from the time when it was queued.
class LayerEvents {
 public:
  void begin();
  // Gets a LayerEvents; for trt_et_engine_provider.profile_layers.
  static void report(void* events, const char* layer, float ms);

 private:
  et_timestamp_t next_ = 0;
};

}  // namespace trt_et
