#include "graph_replay.h"

#include "common/log.h"
#include "event_tracing.h"

namespace trt_et {
namespace {

constexpr int kWarmUpRuns = 2;

}  // namespace

void GraphReplay::drop() {
  plain_runs_ = 0;
  if (graph_ == nullptr) return;
  (void)report(api_.destroy_graph(graph_));
  graph_ = nullptr;
}

// Once begun, a capture is ended whatever happens, else the stream would be lost.
Status GraphReplay::capture(cuda::Stream stream) {
  const TraceScope untraced(nullptr);  // Nothing runs here.
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

Status GraphReplay::run(cuda::Stream stream) {
  if (enabled_ && graph_ == nullptr && plain_runs_ >= kWarmUpRuns) {
    const TraceEvent event("capture graph");
    const Status captured = capture(stream);
    if (!captured.ok()) {
      enabled_ = false;
      log(LogLevel::debug, "TensorRTBackend: no CUDA graph for this engine, it runs plainly: %s",
          captured.text.c_str());
    }
  }
  if (graph_ != nullptr) {
    const TraceEvent event("launch graph");
    return api_.launch_graph(graph_, stream);
  }
  TRT_ET_TRY(queue_(stream));
  if (plain_runs_ < kWarmUpRuns) ++plain_runs_;
  return {};
}

}  // namespace trt_et
