// What a delegate does, as events of ExecuTorch's event tracer: readable in an ETDump.
#pragma once

#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/core/span.h>

#include <memory>
#include <vector>

#include "argument.h"

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

// Results of the calls inside an engine, which an engine built with the option debug_outputs writes
// as further outputs. They have tensors here, since the program has none for them. Used under the
// lock of its delegate.
class DebugOutputs {
 public:
  Status create(const std::vector<Argument>& arguments);

  // The arguments of a call, and the tensors after them.
  executorch::runtime::Span<EValue*> append_to(executorch::runtime::Span<EValue*> values);

  // Logs the results of the call that is over, where the event tracer takes values.
  void log() const;

 private:
  struct Result;

  std::vector<std::shared_ptr<Result>> results_;
  std::vector<EValue*> values_;
  size_t program_outputs_ = 0;
};

}  // namespace trt_et
