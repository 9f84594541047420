// Runs of an engine, through a CUDA graph once they repeat themselves.
#pragma once

#include <functional>
#include <string>

#include "cuda/cuda_api.h"

namespace trt_et {

// Used under the lock of its delegate. The first run with new bindings is plain (TensorRT sets
// itself up in it), a later one is captured, and the graph is launched from there on, until a shape
// or an address changes. Where capturing fails or is refused, runs stay plain; the log says so
// once.
class GraphReplay {
 public:
  // Queues one run plainly: the engine, and the copies on its device that belong to it.
  using Queue = std::function<Status(cuda::Stream)>;

  // `check` fails where a run must not be captured.
  GraphReplay(cuda::Api& api, bool enabled, Queue check, Queue queue)
      : api_(api), enabled_(enabled), check_(std::move(check)), queue_(std::move(queue)) {}
  GraphReplay(const GraphReplay&) = delete;
  GraphReplay& operator=(const GraphReplay&) = delete;
  ~GraphReplay() { drop(); }

  bool captured() const { return graph_ != nullptr; }
  uint64_t launches() const { return launches_; }  // of this graph
  bool enabled() const { return enabled_; }
  const std::string& refusal() const { return refusal_; }  // why it is not enabled

  // The bindings have changed: the graph is wrong now. CUDA finishes a launch that is going on.
  void drop();

  // `capture`: these bindings come often enough for a graph.
  Status run(cuda::Stream stream, bool capture);

 private:
  Status capture();
  Status capture_on(cuda::Stream stream);

  cuda::Api& api_;
  bool enabled_;
  std::string refusal_;
  const Queue check_;
  const Queue queue_;
  bool warm_ = false;  // has run with these bindings
  uint64_t launches_ = 0;
  cuda::Graph graph_ = nullptr;
};

}  // namespace trt_et
