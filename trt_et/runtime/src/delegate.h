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
#include "device_buffer.h"
#include "engine.h"

namespace trt_et {

// Thread-safe: two threads that execute one delegate take turns. It owns no argument.
class Delegate {
 public:
  // Loads the engine of `processed` onto the device that its blob names. `processed` is freed here
  // when the engine does not need its bytes any more; otherwise its owner must keep it.
  static Status create(executorch::runtime::FreeableBuffer* processed,
                       std::unique_ptr<Delegate>* delegate);
  Delegate(const Delegate&) = delete;
  Delegate& operator=(const Delegate&) = delete;
  ~Delegate();

  // Queues one run on this thread's stream of the device. Waits only for what the host reads.
  Status execute(executorch::runtime::Span<EValue*> arguments);

 private:
  // An argument of the delegate, and where its memory is in this call.
  struct Argument {
    Expectation expected;
    size_t binding = 0;    // index in the blob's list
    int alias_of = -1;     // argument whose memory an aliased output takes
    DeviceBuffer staging;  // for memory that the engine cannot reach

    // This call's:
    Tensor* tensor = nullptr;
    MemoryShape shape;
    cuda::PointerInfo where;
    void* address = nullptr;  // what the engine is given
    bool late = false;        // the shape is known only after the run
  };

  Delegate(cuda::Api& api, int device) : api_(api), device_(device) {}

  Status load(const Blob& blob);
  Status read_arguments(const Blob& blob);
  Status read_aliases(const Blob& blob);
  Status collect(executorch::runtime::Span<EValue*> values);
  Status run(cuda::Stream stream, bool* wait);
  Status join_stream(cuda::Stream stream);

  // In delegate_io.cpp: the way of each argument to and from the engine.
  Status locate(Argument& argument);
  Status stage(Argument& argument, size_t bytes);
  Status bind_input(Argument& argument, cuda::Stream stream, bool* wait);
  Status bind_output(Argument& argument, cuda::Stream stream);
  Status finish_output(Argument& argument, cuda::Stream stream, bool* wait);
  Status copy_in(Argument& argument, size_t bytes, cuda::Stream stream, bool* wait);
  Status copy_out(Argument& argument, size_t bytes, cuda::Stream stream, bool* wait);

  cuda::Api& api_;
  const int device_;
  std::mutex mutex_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Context> context_;
  std::vector<Argument> arguments_;  // inputs, then outputs, as ExecuTorch passes them
  size_t input_count_ = 0;
  // Behind the last run: for the next one on another thread's stream, and for the destructor.
  cuda::Event done_ = nullptr;
  bool has_run_ = false;
  cuda::Stream last_stream_ = nullptr;
};

}  // namespace trt_et
