// Execution contexts of one delegate, and which calls come back often enough for a CUDA graph.
//
// A graph is launched only while the context that it was captured from stays as it was, as TensorRT
// demands. So a delegate whose shapes or addresses alternate gets a few contexts, one for each
// graph; calls that do not come back share one context and run plainly.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "argument.h"
#include "cuda/streams.h"
#include "engine/engine.h"
#include "graph_replay.h"

namespace trt_et {

// A tensor's memory; null: none.
struct Memory {
  void* data = nullptr;
  size_t bytes = 0;

  bool operator==(const Memory& other) const { return data == other.data && bytes == other.bytes; }
};

// A context, what it was given last, and the graph of that.
struct ContextSlot {
  // One argument's.
  struct Bound {
    MemoryShape shape;
    bool late = false;  // the shape is known only after the run
    Memory memory;      // null: nothing is bound
    Memory copied;      // from or to staging memory, as part of the run
  };

  ContextSlot(cuda::Api& api, bool graphs, size_t arguments, GraphReplay::Queue queue)
      : replay(
            api, graphs, [this](cuda::Stream stream) { return context->check_capture(stream); },
            std::move(queue)),
        bound(arguments) {}

  // Nothing that it was given is certain any more.
  void forget() {
    replay.drop();
    prepared = kept = false;
    for (Bound& one : bound) one.memory = {};
  }

  std::unique_ptr<Context> context;
  GraphReplay replay;
  std::vector<Bound> bound;
  bool prepared = false;  // the engine has the shapes of the inputs
  bool late = false;      // an output's shape is known only after the run
  bool kept = false;      // its bindings come often enough for a graph
  void* scratch = nullptr;
  uint64_t last_use = 0;
};

// How often calls with the same shapes and addresses came among the last few different ones.
class CallHistory {
 public:
  // Counts a call, and says whether it comes often enough.
  bool is_frequent(uint64_t key);
  // A graph went after so many launches. Where graphs do not last, calls have to come more often.
  void dropped(uint64_t launches);

 private:
  struct Entry {
    uint64_t key = 0;
    uint32_t count = 0;
    uint64_t last = 0;
  };

  std::array<Entry, 8> entries_{};
  uint64_t clock_ = 0;
  uint32_t needed_ = 3;
};

}  // namespace trt_et
