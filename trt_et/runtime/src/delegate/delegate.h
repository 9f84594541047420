// One loaded partition of a method: an engine, its context, and what its arguments must be.
#pragma once

#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/freeable_buffer.h>
#include <executorch/runtime/core/span.h>

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "argument.h"
#include "context_slot.h"
#include "cuda/cuda_api.h"
#include "cuda/device_buffer.h"
#include "cuda/streams.h"
#include "device_state.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "event_tracing.h"
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
  // An argument of the delegate, and where its memory is.
  struct Argument {
    TensorSpec expected;
    size_t binding = 0;    // index in the blob's list
    int alias_of = -1;     // argument whose memory an aliased output takes
    DeviceBuffer staging;  // for memory that the engine cannot reach

    // This call's:
    Tensor* tensor = nullptr;
    MemoryShape shape;        // as the engine has it
    void* address = nullptr;  // what the engine is to be given
    size_t capacity = 0;
    bool late = false;  // the shape is known only after the run
    // Memory of the engine's device that is copied from or to staging memory, as part of the run.
    Memory copied;
    void* host = nullptr;  // of shared state: where ExecuTorch has it
    std::shared_ptr<DeviceState> state;
    void* arrived = nullptr;  // pinned memory that the output was copied to

    Memory memory() const { return {address, capacity}; }

    // What CUDA said of the last few pointers, in which epoch of planned memory.
    struct Known {
      const void* data = nullptr;
      uint64_t epoch = 0;
      cuda::PointerInfo where;
    };
    std::array<Known, 4> known;
    size_t oldest = 0;
    cuda::PointerInfo where;  // this call's

    // Where the engine had it in the last call.
    Memory last;

    // Of an output: where it was when it was last compared with the inputs, and whether it lies on
    // one that the engine reads.
    Memory compared;
    bool overlaps = false;
  };

  Delegate(cuda::Api& api, int device, const LoadOptions& options)
      : api_(api), device_(device), graphs_(options.cuda_graphs) {}

  // In delegate_load.cpp.
  Status load(const Blob& blob, const LoadOptions& options);
  Status create_context(const LoadOptions& options);
  Status create_events();
  Status profile_layers();
  Status read_arguments(const Blob& blob);
  Status read_aliases(const Blob& blob);
  Status read_state_inputs(const LoadOptions& options);
  Status set_alias(size_t output, size_t input);

  Status collect(executorch::runtime::Span<EValue*> values);
  Status use_device_state();
  void restore_host_state();
  Status join_stream(const WorkStream& stream);
  Status leave_stream(cuda::Stream stream);
  void* pinned(const Argument& argument, size_t bytes, bool may_wait);
  void unstage_outputs();
  Status others_stream(int device, cuda::Stream* stream);
  Status run(cuda::Stream stream, bool* wait);
  Status finish(Status status, cuda::Stream stream, bool wait);
  Status read_shapes();
  Status prepare(cuda::Stream stream);
  Status set_addresses();
  Status wait_and_rebind();
  Status enqueue(cuda::Stream stream);
  Status queue(cuda::Stream stream);
  Status enqueue_with_scratch(cuda::Stream stream);

  // In context_slot.cpp: which context takes a call.
  bool has_shapes(const ContextSlot& slot) const;
  bool has_addresses(const ContextSlot& slot) const;
  void use_slot(ContextSlot& slot);
  Status add_slot();
  Status replace_slot();
  Status choose_by_shapes(cuda::Stream stream);
  Status choose_by_addresses(cuda::Stream stream);
  uint64_t call_key() const;

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
  Status copy_on_device(Argument& argument, cuda::Stream stream);
  Status copy_in(Argument& argument, size_t bytes, cuda::Stream stream, bool* wait);
  Status copy_out(Argument& argument, size_t bytes, cuda::Stream stream, bool* wait);

  cuda::Api& api_;
  const int device_;
  std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
  LayerEvents layers_;
  std::shared_ptr<Scratch> scratch_;  // null: each context has its own
  std::vector<std::unique_ptr<ContextSlot>> slots_;
  ContextSlot* slot_ = nullptr;  // of the last call
  size_t max_slots_ = 4;
  uint64_t clock_ = 0;
  CallHistory history_;
  bool graphs_;
  std::vector<Argument> arguments_;  // inputs, then outputs, as ExecuTorch passes them
  size_t input_count_ = 0;
  // Inputs that are set to zero before the first run: state, in memory that its allocator has not
  // cleared.
  std::vector<size_t> uncleared_;
  std::vector<size_t> device_state_;  // arguments that are shared state
  size_t alignment_ = 1;              // of the addresses that the engine takes
  bool moved_ = false;                // this call gives the engine another input than the last one
  // Behind the last run, unless it has been waited for: for the next one on another thread's
  // stream, and for the destructor.
  cuda::Event done_ = nullptr;
  bool in_flight_ = false;
  WorkStream last_stream_;
  // Where other libraries' streams may use the same memory: behind what the legacy stream, and with
  // it every blocking stream, has got before a run. Null where nothing but blocking streams of ours
  // and the legacy stream is there.
  cuda::Event before_ = nullptr;
  bool beside_cuda_backend_ = false;
  bool fenced_ = false;  // this run
};

}  // namespace trt_et
