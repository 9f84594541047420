// One loaded partition of a method: an engine, its context, and what its arguments must be.
#pragma once

#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/freeable_buffer.h>
#include <executorch/runtime/core/span.h>

#include <memory>
#include <mutex>
#include <vector>

#include "argument.h"
#include "cuda/cuda_api.h"
#include "cuda/device_buffer.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "event_tracing.h"
#include "graph_replay.h"
#include "scratch.h"

namespace trt_et {

// Thread-safe: two threads that execute one delegate take turns. It owns no argument.
class Delegate {
 public:
  // Loads the engine of `processed` onto the device that its blob (or the option) names.
  // `processed` is freed here when the engine does not need its bytes any more; otherwise its owner
  // must keep it.
  static Status create(executorch::runtime::FreeableBuffer* processed, const LoadOptions& options,
                       std::unique_ptr<Delegate>* delegate);
  Delegate(const Delegate&) = delete;
  Delegate& operator=(const Delegate&) = delete;
  ~Delegate();

  // Queues one run on this thread's stream of the device. Waits only for what the host reads. Once
  // shapes and addresses repeat themselves it allocates nothing and binds nothing.
  Status execute(executorch::runtime::Span<EValue*> arguments);

 private:
  // A tensor's memory; null: none.
  struct Memory {
    void* data = nullptr;
    size_t bytes = 0;

    bool operator==(const Memory& other) const {
      return data == other.data && bytes == other.bytes;
    }
  };

  // An argument of the delegate, and where its memory is.
  struct Argument {
    Expectation expected;
    size_t binding = 0;    // index in the blob's list
    int alias_of = -1;     // argument whose memory an aliased output takes
    DeviceBuffer staging;  // for memory that the engine cannot reach
    MemoryShape shape;     // as the engine has it

    // This call's:
    Tensor* tensor = nullptr;
    void* address = nullptr;  // what the engine is to be given
    size_t capacity = 0;
    bool late = false;  // the shape is known only after the run
    // Memory of the engine's device that is copied from or to staging memory, as part of the run.
    Memory copied;

    // What CUDA said of a pointer, in which epoch of planned memory.
    cuda::PointerInfo where;
    const void* known = nullptr;
    uint64_t epoch = 0;
    bool remembered = false;

    // What the engine was given last.
    void* bound = nullptr;
    size_t bound_capacity = 0;
    Memory bound_copied;

    // Of an output: where it was when it was last compared with the inputs, and whether it lies on
    // one that the engine reads.
    Memory compared;
    bool overlaps = false;
  };

  Delegate(cuda::Api& api, int device, const LoadOptions& options)
      : api_(api),
        device_(device),
        replay_(
            api, options.cuda_graphs,
            [this](cuda::Stream stream) { return context_->check_capture(stream); },
            [this](cuda::Stream stream) { return queue(stream); }) {}

  // In delegate_load.cpp.
  Status load(const Blob& blob, const LoadOptions& options);
  Status create_context(const LoadOptions& options);
  Status time_layers();
  Status read_arguments(const Blob& blob);
  Status read_aliases(const Blob& blob);
  Status read_state_inputs(const LoadOptions& options);
  Status set_alias(size_t output, size_t input);

  Status collect(executorch::runtime::Span<EValue*> values);
  Status join_stream(cuda::Stream stream);
  Status run(cuda::Stream stream, bool* wait);
  Status finish(Status status, cuda::Stream stream, bool wait);
  Status set_shapes(cuda::Stream stream);
  Status set_addresses();
  Status settle();
  Status enqueue(cuda::Stream stream);
  Status queue(cuda::Stream stream);
  Status enqueue_with_scratch(cuda::Stream stream);

  // In delegate_io.cpp: the way of each argument to and from the engine.
  Status find_output_shape(Argument& argument);
  Status locate(Argument& argument);
  Status stage(Argument& argument, size_t bytes);
  bool usable_in_place(const Argument& argument) const;
  bool overlaps_input(Argument& output, size_t bytes) const;
  Status place_input(Argument& argument, cuda::Stream stream, bool* wait);
  Status place_output(Argument& argument);
  Status finish_output(Argument& argument, cuda::Stream stream, bool* wait);
  Status clear_state();
  Status copy_near(Argument& argument, cuda::Stream stream);
  Status copy_in(Argument& argument, size_t bytes, cuda::Stream stream, bool* wait);
  Status copy_out(Argument& argument, size_t bytes, cuda::Stream stream, bool* wait);

  cuda::Api& api_;
  const int device_;
  std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Context> context_;
  LayerEvents layers_;
  GraphReplay replay_;
  std::shared_ptr<Scratch> scratch_;  // null: the context has its own
  void* scratch_memory_ = nullptr;    // as the context has it
  std::vector<Argument> arguments_;   // inputs, then outputs, as ExecuTorch passes them
  size_t input_count_ = 0;
  // Inputs that are set to zero before the first run: state, in memory that its allocator has not
  // cleared.
  std::vector<size_t> uncleared_;
  size_t alignment_ = 1;   // of the addresses that the engine takes
  bool prepared_ = false;  // the engine has the shapes of the arguments
  bool late_ = false;      // an output's shape is known only after the run
  bool moved_ = false;     // this call gives the engine another input than the last one
  // Behind the last run, unless it has been waited for: for the next one on another thread's
  // stream, and for the destructor.
  cuda::Event done_ = nullptr;
  bool in_flight_ = false;
  cuda::Stream last_stream_ = nullptr;
};

}  // namespace trt_et
