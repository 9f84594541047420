#include "graph_replay.h"

#include "common/log.h"
#include "event_tracing.h"

namespace trt_et {

void GraphReplay::drop() {
  warm_ = false;
  launches_ = 0;
  if (graph_ == nullptr) return;
  (void)report(api_.destroy_graph(graph_));
  graph_ = nullptr;
}

// On a stream that nobody else knows and that no default stream waits for: other threads may use
// the legacy stream, free memory and wait for their streams meanwhile, and the caller's stream may
// be of any kind.
Status GraphReplay::capture() {
  const TraceScope untraced(nullptr);  // Nothing runs here.
  cuda::Stream stream = nullptr;
  TRT_ET_TRY(api_.create_stream(cuda::StreamKind::non_blocking, &stream));
  Status status = capture_on(stream);
  Status destroyed = api_.destroy_stream(stream);
  return status.ok() ? std::move(destroyed) : std::move(status);
}

// Once begun, a capture is ended whatever happens.
Status GraphReplay::capture_on(cuda::Stream stream) {
  TRT_ET_TRY(check_(stream));
  TRT_ET_TRY(api_.begin_capture(stream));
  Status queued = queue_(stream);
  cuda::Graph graph = nullptr;
  Status ended = api_.end_capture(stream, &graph);
  if (queued.ok() && ended.ok()) {
    graph_ = graph;
    return {};
  }
  if (graph != nullptr) (void)api_.destroy_graph(graph);
  return queued.ok() ? std::move(ended) : std::move(queued);
}

Status GraphReplay::run(cuda::Stream stream, bool capture) {
  if (enabled_ && graph_ == nullptr && capture && warm_) {
    const TraceEvent event("capture graph");
    const Status captured = this->capture();
    if (!captured.ok()) {
      enabled_ = false;
      refusal_ = captured.text;
      log(LogLevel::debug, "TensorRTBackend: no CUDA graph for this engine, it runs plainly: %s",
          captured.text.c_str());
    }
  }
  if (graph_ != nullptr) {
    const TraceEvent event("launch graph");
    ++launches_;
    return api_.launch_graph(graph_, stream);
  }
  TRT_ET_TRY(queue_(stream));
  warm_ = true;
  return {};
}

}  // namespace trt_et
