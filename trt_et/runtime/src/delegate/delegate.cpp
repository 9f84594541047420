#include "delegate.h"

#include "cuda/streams.h"
#include "event_tracing.h"

namespace trt_et {

using executorch::runtime::Span;

Delegate::~Delegate() {
  cuda::DeviceGuard guard(api_);
  (void)report(guard.enter(device_));
  // Queued runs use the context and the staging memory.
  if (in_flight_) (void)report(api_.synchronize_event(done_));
  replay_.drop();
  if (done_ != nullptr) (void)report(api_.destroy_event(done_));
  context_.reset();
  scratch_.reset();
  engine_.reset();
}

// Runs of one context must not overlap: a new stream first waits for the last run on the old one.
Status Delegate::join_stream(cuda::Stream stream) {
  if (in_flight_ && last_stream_ != stream) TRT_ET_TRY(api_.wait_event(stream, done_));
  last_stream_ = stream;
  return {};
}

// The sizes of dynamic shapes come among the arguments as integers. The engine has no use for them:
// it reads every size off an input tensor.
Status Delegate::collect(Span<EValue*> values) {
  size_t count = 0;
  for (EValue* value : values) {
    if (value != nullptr && value->isInt()) continue;
    if (count < arguments_.size()) {
      Argument& argument = arguments_[count];
      TRT_ET_TRY(check_tensor(argument.expected, value, count, &argument.tensor));
    }
    ++count;
  }
  if (count == arguments_.size()) return {};
  return fail(Error::InvalidArgument,
              "engine has %zu inputs and %zu outputs, but the delegate got %zu tensors",
              input_count_, arguments_.size() - input_count_, count);
}

Status Delegate::execute(Span<EValue*> arguments) {
  const std::lock_guard<std::mutex> lock(mutex_);
  TRT_ET_TRY(collect(arguments));
  cuda::DeviceGuard guard(api_);
  TRT_ET_TRY(guard.enter(device_));
  cuda::Stream stream = nullptr;
  TRT_ET_TRY(thread_stream(api_, device_, &stream));
  TRT_ET_TRY(join_stream(stream));
  bool wait = false;
  Status status = run(stream, &wait);
  return finish(std::move(status), stream, wait);
}

// Leaves the run queued, with an event behind it, or waits for it.
Status Delegate::finish(Status status, cuda::Stream stream, bool wait) {
  if (status.ok() && !wait) {
    status = api_.record_event(done_, stream);
    if (status.ok()) {
      in_flight_ = true;
      return {};
    }
  }
  // After a failure too: what is queued uses memory that the caller may free next.
  const TraceEvent event("wait");
  Status drained = api_.synchronize_stream(stream);
  in_flight_ = false;
  if (status.ok() && drained.ok()) return {};
  // Whatever the engine was told may have got lost on the way: the next call tells it again.
  replay_.drop();
  prepared_ = false;
  for (Argument& argument : arguments_) argument.bound = nullptr;
  return status.ok() ? std::move(drained) : std::move(status);
}

Status Delegate::run(cuda::Stream stream, bool* wait) {
  if (!uncleared_.empty()) TRT_ET_TRY(clear_state());
  // Shapes first: what no optimization profile takes is refused before anything is queued.
  TRT_ET_TRY(set_shapes(stream));
  moved_ = false;
  for (size_t i = 0; i < input_count_; ++i) {
    TRT_ET_TRY(place_input(arguments_[i], stream, wait));
  }
  for (size_t i = input_count_; i < arguments_.size(); ++i) TRT_ET_TRY(place_output(arguments_[i]));
  TRT_ET_TRY(set_addresses());
  TRT_ET_TRY(scratch_ == nullptr ? enqueue(stream) : enqueue_with_scratch(stream));
  if (late_) TRT_ET_TRY(api_.synchronize_stream(stream));
  for (size_t i = input_count_; i < arguments_.size(); ++i) {
    TRT_ET_TRY(finish_output(arguments_[i], stream, wait));
  }
  return {};
}

Status Delegate::enqueue(cuda::Stream stream) {
  return late_ ? queue(stream) : replay_.run(stream);
}

// What a CUDA graph holds: the engine, and the copies on its device before and after.
Status Delegate::queue(cuda::Stream stream) {
  for (size_t i = 0; i < input_count_; ++i) TRT_ET_TRY(copy_near(arguments_[i], stream));
  {
    const TraceEvent event("enqueue");
    layers_.begin();
    TRT_ET_TRY(context_->enqueue(stream));
  }
  for (size_t i = input_count_; i < arguments_.size(); ++i) {
    TRT_ET_TRY(copy_near(arguments_[i], stream));
  }
  return {};
}

Status Delegate::enqueue_with_scratch(cuda::Stream stream) {
  Scratch::Use use(*scratch_);
  TRT_ET_TRY(use.begin(stream));
  if (use.memory() != scratch_memory_) {
    TRT_ET_TRY(settle());
    TRT_ET_TRY(context_->set_memory(use.memory(), use.size()));
    scratch_memory_ = use.memory();
  }
  TRT_ET_TRY(enqueue(stream));
  return use.end(stream);
}

Status Delegate::set_shapes(cuda::Stream stream) {
  bool changed = !prepared_;
  for (size_t i = 0; i < input_count_; ++i) {
    Argument& argument = arguments_[i];
    MemoryShape shape;
    TRT_ET_TRY(check_shape(argument.expected, *argument.tensor, &shape));
    if (prepared_ && shape == argument.shape) continue;
    changed = true;
    argument.shape = shape;
  }
  if (!changed && !late_) return {};
  prepared_ = false;
  TRT_ET_TRY(settle());
  for (size_t i = 0; i < input_count_; ++i) {
    const Argument& argument = arguments_[i];
    TRT_ET_TRY(
        context_->set_input_shape(argument.binding, argument.shape.dims, argument.shape.rank));
  }
  TRT_ET_TRY(context_->prepare(stream));
  late_ = false;
  for (size_t i = input_count_; i < arguments_.size(); ++i) {
    TRT_ET_TRY(find_output_shape(arguments_[i]));
    late_ = late_ || arguments_[i].late;
  }
  prepared_ = true;
  return {};
}

Status Delegate::set_addresses() {
  for (Argument& argument : arguments_) {
    if (!(argument.copied == argument.bound_copied)) {
      if (replay_.captured()) TRT_ET_TRY(settle());
      argument.bound_copied = argument.copied;
    }
    if (argument.address == argument.bound && argument.capacity == argument.bound_capacity) {
      continue;
    }
    TRT_ET_TRY(settle());
    argument.bound = nullptr;
    TRT_ET_TRY(context_->set_address(argument.binding, argument.address, argument.capacity));
    argument.bound = argument.address;
    argument.bound_capacity = argument.capacity;
  }
  return {};
}

// TensorRT forbids to change a context while a run of it is going on, and it is changed by the
// host: so the host waits, where anything changes, for the run before.
Status Delegate::settle() {
  if (in_flight_) TRT_ET_TRY(api_.synchronize_event(done_));
  in_flight_ = false;
  replay_.drop();
  return {};
}

}  // namespace trt_et
