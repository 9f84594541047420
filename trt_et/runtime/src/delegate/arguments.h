// A delegate's arguments, and how each reaches the engine: in place if it is on the engine's
// device, through staging memory if it is on the host, on another GPU, at an address that the
// engine does not take, or at another address in each call.
#pragma once

#include <executorch/runtime/core/span.h>

#include <vector>

#include "argument.h"
#include "contexts.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "run_stream.h"

namespace trt_et {

// Used under the lock of its delegate, with the device current.
class Arguments {
 public:
  Arguments(cuda::Api& api, int device, RunStream& stream)
      : api_(api), device_(device), stream_(stream) {}

  // Reads what the blob and the engine say of them.
  Status create(const Blob& blob, const Engine& engine, const LoadOptions& options);

  std::vector<Argument>& all() { return arguments_; }
  size_t staging_bytes() const;

  // Checks the tensors of a call, and the shapes of the inputs.
  Status collect(executorch::runtime::Span<executorch::runtime::EValue*> values);

  // While the engine runs, the tensors of shared state have its memory on the GPU.
  Status use_device_state();
  void restore_host_state();
  bool has_shared_state() const { return !device_state_.empty(); }
  bool has_state() const { return has_shared_state() || !uncleared_.empty(); }
  Status clear_state();

  // Finds the memory that the engine is given, and queues the copies from hosts and other GPUs.
  // Sets `wait` where the host's memory is read or written.
  Status place(Contexts& contexts, bool* wait);
  // Copies of arguments on the engine's device: those that move are not part of a graph.
  enum class Copied { staying, moving };
  Status copy(bool inputs, const Contexts& contexts, Copied which, cuda::Stream stream);
  // After the run: queues the outputs' copies to hosts and other GPUs.
  Status finish_outputs(Contexts& contexts, bool* wait);

  // Takes the arguments as `slot` has them bound. Fails where that is not possible without a change
  // or a wait.
  Status place_for_capture(const ContextSlot& slot);

 private:
  Status read_aliases(const Blob& blob);
  Status read_state_inputs(const LoadOptions& options);
  Status set_alias(size_t output, size_t input);

  Status locate(Argument& argument);
  Status stage(Argument& argument, size_t bytes);
  bool is_reachable(const Argument& argument) const;
  bool is_aligned(const Argument& argument) const;
  bool is_usable(const Argument& argument) const;
  bool is_copied_on_device(const Argument& argument) const;
  bool overlaps_input(const Memory& memory) const;
  Status place_input(Argument& argument, ContextSlot::Bound& bound, const ContextSlot& slot,
                     bool* wait);
  Status place_output(Argument& argument, ContextSlot::Bound& bound, const ContextSlot& slot,
                      bool* wait);
  Status finish_output(Argument& argument, Contexts& contexts, bool* wait);
  Status copy_in(Argument& argument, bool* wait);
  Status copy_out(Argument& argument, bool* wait);
  Status copy_peer(Argument& argument, bool in);
  Status copy_on_device(const Argument& argument, cuda::Stream stream);

  cuda::Api& api_;
  const int device_;
  RunStream& stream_;
  std::vector<Argument> arguments_;  // inputs, then outputs, as ExecuTorch passes them
  size_t input_count_ = 0;
  bool integrated_ = false;       // the GPU shares its memory with the host
  bool pageable_access_ = false;  // and reaches its pageable memory
  size_t alignment_ = 1;          // of the addresses that the engine takes
  // Inputs that are set to zero before the first run: state, in memory that its allocator has not
  // cleared.
  std::vector<size_t> uncleared_;
  std::vector<size_t> device_state_;  // arguments that are shared state
};

}  // namespace trt_et
