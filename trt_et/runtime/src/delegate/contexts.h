// The execution contexts of one delegate: one for each shape that comes often, and its CUDA graph.
//
// A context may be changed while a run of it is going on: TensorRT has read addresses and shapes
// when the call that queues a run returns. It forbids two runs at a time, and changing a context
// that a graph was captured from, so the graph goes first. Nothing here waits.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "argument.h"
#include "cuda/device_buffer.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "event_tracing.h"
#include "shared_memory.h"

namespace trt_et {

// Runs of an engine, through a CUDA graph once they repeat themselves.
//
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

// A context, what it was given last, and the graph of that.
struct ContextSlot {
  // What the context has of one argument.
  struct Bound {
    MemoryShape shape;
    bool late = false;  // the shape is known only after the run
    Memory memory;      // null: nothing is bound
    Memory copied;      // from or to staging memory, as part of the graph
    // The tensor's own memory in the calls of this context.
    const void* seen = nullptr;
    uint32_t moves = 0, stays = 0;
    bool moving = false;  // it has moved often: copied beside the graph, from or to staging memory
  };

  ContextSlot(cuda::Api& api, bool graphs, size_t arguments, GraphReplay::Queue queue)
      : replay(
            api, graphs, [this](cuda::Stream stream) { return context->check_capture(stream); },
            std::move(queue)),
        bound(arguments) {}

  // Nothing that it was given is certain any more.
  void forget();
  // Counts whether the argument's tensor has moved.
  void see(Bound& one, const Memory& memory) const;

  DeviceBuffer memory;  // the context's scratch memory, if the library takes none of its own
  std::unique_ptr<Context> context;
  GraphReplay replay;
  std::vector<Bound> bound;
  bool prepared = false;  // the engine has the shapes of the inputs
  bool late = false;      // an output's shape is known only after the run
  bool kept = false;      // its shapes come often enough for a graph
  bool fixed = false;     // a graph of the caller's holds a run: it may not change any more
  uint32_t settled = 0;   // runs since something was bound
  void* scratch = nullptr;
  uint64_t last_use = 0;
};

// How often calls with the same shapes came among the last few different ones.
class CallHistory {
 public:
  // Counts a call, and returns whether it comes often enough.
  bool is_frequent(uint64_t key);

 private:
  struct Entry {
    uint64_t key = 0;
    uint32_t count = 0;
    uint64_t last = 0;
  };

  std::array<Entry, 8> entries_{};
  uint64_t clock_ = 0;
};

// Used under the lock of its delegate, with the device current.
class Contexts {
 public:
  Contexts(cuda::Api& api, int device, std::vector<Argument>& arguments, GraphReplay::Queue queue)
      : api_(api), device_(device), arguments_(arguments), queue_(std::move(queue)) {}

  Status create(const Engine& engine, const LoadOptions& options);

  ContextSlot& current() { return *slot_; }
  ContextSlot::Bound& bound(size_t argument) { return slot_->bound[argument]; }
  bool is_moving(size_t argument) const { return slot_->bound[argument].moving; }
  size_t count() const { return slots_.size(); }
  uint64_t graph_launches() const { return launches_; }
  LayerEvents& layers() { return layers_; }
  // Why runs, or the last one, are plain; "" where they are not.
  std::string no_graph() const {
    return no_graph_.empty() && on_green_ ? "the stream is of a green context" : no_graph_;
  }

  // Takes the context for the shapes of this call, and asks it for those of the outputs. `changes`:
  // not one that may not change.
  Status choose(cuda::Stream stream, bool changes);
  // A context that has run with these shapes, without changing anything; null: none.
  ContextSlot* find_warm();
  void take(ContextSlot& slot);
  // Whether the current context has what the arguments are placed at.
  bool has_addresses() const;
  Status set_addresses();
  // Queues one run, through the graph once runs repeat themselves.
  Status run(const WorkStream& stream);
  void forget();
  // The load option warm_up_at_load: runs the engine with its typical shapes, so that the first
  // calls find its kernels compiled and loaded. The inputs are zeros in memory that is freed
  // afterwards: neither a tensor nor state is read or written. A run that fails is logged; the
  // first call with these shapes reports the error to its caller.
  void warm_up(const Blob& blob);
  // Whether graphs of the caller's hold so many contexts that no more are given to them.
  bool are_captured() const;
  // Whether a run may be part of the caller's graph.
  bool can_be_captured() const { return scratch_ == nullptr && !profiles_layers_; }
  // Frees them; nothing may be running.
  void clear();

 private:
  bool has_shapes(const ContextSlot& slot) const;
  ContextSlot* find(bool changes);
  Status add();
  bool has_room_for_another() const;
  Status replace();
  Status prepare(cuda::Stream stream);
  Status find_output_shape(Argument& argument);
  void change(ContextSlot& slot);
  Status enqueue(const WorkStream& stream);
  Status profile_layers();
  Status run_on_zeros();
  uint64_t key_of_shapes() const;

  cuda::Api& api_;
  const int device_;
  std::vector<Argument>& arguments_;
  const GraphReplay::Queue queue_;
  const Engine* engine_ = nullptr;
  LayerEvents layers_;
  bool profiles_layers_ = false;
  std::shared_ptr<Scratch> scratch_;  // null: each context has its own
  bool graphs_ = true;
  std::string no_graph_;
  bool on_green_ = false;  // the last run
  int profile_ = -1;
  size_t max_count_ = 2;
  std::vector<std::unique_ptr<ContextSlot>> slots_;
  ContextSlot* slot_ = nullptr;  // of the last call
  CallHistory history_;
  uint64_t clock_ = 0;
  uint64_t launches_ = 0;
  uint32_t needed_ = 2;  // plain runs before a capture
};

}  // namespace trt_et
