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
  slots_.clear();
  for (const cuda::Event event : {done_, before_}) {
    if (event != nullptr) (void)report(api_.destroy_event(event));
  }
  scratch_.reset();
  engine_.reset();
}

// Runs of one context must not overlap: a new stream first waits for the last run on the old one.
Status Delegate::join_stream(const WorkStream& stream) {
  if (in_flight_ && !stream.is(last_stream_)) TRT_ET_TRY(api_.wait_event(stream.handle, done_));
  last_stream_ = stream;
  // Within a CallerStreamGuard, all of ExecuTorch's own work is on the caller's stream, too.
  fenced_ = before_ != nullptr && stream.source != WorkStream::Source::guard &&
            stream.handle != cuda::kLegacyStream &&
            (beside_cuda_backend_ || stream.source == WorkStream::Source::given);
  if (!fenced_) return {};
  TRT_ET_TRY(api_.record_event(before_, cuda::kLegacyStream));
  return api_.wait_event(stream.handle, before_);
}

// What other libraries queue on the legacy stream, or on blocking streams of their own, from now on
// comes behind this run.
Status Delegate::leave_stream(cuda::Stream stream) {
  TRT_ET_TRY(api_.record_event(done_, stream));
  in_flight_ = true;
  return fenced_ ? api_.wait_event(cuda::kLegacyStream, done_) : Status{};
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

// While the engine runs, the tensors of shared state have its memory on the GPU. A buffer and its
// new value may be one tensor.
Status Delegate::use_device_state() {
  for (const size_t index : device_state_) {
    Argument& argument = arguments_[index];
    void* const host = argument.tensor->mutable_data_ptr();
    if (host == nullptr || argument.tensor->nbytes() == 0) continue;
    if (argument.state == nullptr || argument.host != host) {
      TRT_ET_TRY(DeviceState::of(host, api_, device_, argument.tensor->nbytes(), &argument.state));
      argument.host = host;
    }
  }
  for (const size_t index : device_state_) {
    const Argument& argument = arguments_[index];
    if (argument.state == nullptr) continue;
    argument.tensor->unsafeGetTensorImpl()->set_data(argument.state->data());
  }
  return {};
}

void Delegate::restore_host_state() {
  for (const size_t index : device_state_) {
    const Argument& argument = arguments_[index];
    if (argument.state != nullptr && argument.tensor->const_data_ptr() == argument.state->data()) {
      argument.tensor->unsafeGetTensorImpl()->set_data(argument.host);
    }
  }
}

Status Delegate::execute(Span<EValue*> arguments) {
  const std::lock_guard<std::mutex> lock(mutex_);
  TRT_ET_TRY(collect(arguments));
  cuda::DeviceGuard guard(api_);
  TRT_ET_TRY(guard.enter(device_));
  WorkStream stream;
  TRT_ET_TRY(thread_stream(api_, device_, &stream));
  TRT_ET_TRY(join_stream(stream));
  // Another method may use the shared state next, on another thread's stream.
  bool wait = !device_state_.empty();
  Status status = use_device_state();
  if (status.ok()) status = run(stream.handle, &wait);
  status = finish(std::move(status), stream.handle, wait);
  restore_host_state();
  return status;
}

// Leaves the run queued, with an event behind it, or waits for it.
Status Delegate::finish(Status status, cuda::Stream stream, bool wait) {
  if (status.ok() && !wait) {
    status = leave_stream(stream);
    if (status.ok()) return {};
  }
  // After a failure too: what is queued uses memory that the caller may free next.
  const TraceEvent event("wait");
  Status drained = api_.synchronize_stream(stream);
  in_flight_ = false;
  if (last_stream_.staging != nullptr) last_stream_.staging->reset();
  if (status.ok() && drained.ok()) {
    unstage_outputs();
    return {};
  }
  // What the engine was given may be lost: the next call sets it again.
  for (const auto& slot : slots_) slot->forget();
  for (Argument& argument : arguments_) {
    argument.last = {};
    argument.arrived = nullptr;
  }
  return status.ok() ? std::move(drained) : std::move(status);
}

Status Delegate::run(cuda::Stream stream, bool* wait) {
  if (!uncleared_.empty()) TRT_ET_TRY(clear_state());
  // Shapes first: what no optimization profile takes is refused before anything is queued.
  TRT_ET_TRY(read_shapes());
  TRT_ET_TRY(choose_by_shapes(stream));
  moved_ = false;
  for (size_t i = 0; i < input_count_; ++i) {
    TRT_ET_TRY(place_input(arguments_[i], stream, wait));
  }
  for (size_t i = input_count_; i < arguments_.size(); ++i) TRT_ET_TRY(place_output(arguments_[i]));
  TRT_ET_TRY(choose_by_addresses(stream));
  TRT_ET_TRY(set_addresses());
  TRT_ET_TRY(scratch_ == nullptr ? enqueue(stream) : enqueue_with_scratch(stream));
  if (slot_->late) TRT_ET_TRY(api_.synchronize_stream(stream));
  for (size_t i = input_count_; i < arguments_.size(); ++i) {
    TRT_ET_TRY(finish_output(arguments_[i], stream, wait));
  }
  return {};
}

Status Delegate::enqueue(cuda::Stream stream) {
  if (slot_->late || !graphs_) return queue(stream);
  Status status = slot_->replay.run(stream, slot_->kept);
  if (slot_->replay.enabled()) return status;
  // What is refused once is refused for good, and no context is kept for a graph any more.
  graphs_ = false;
  for (const auto& slot : slots_) slot->kept = false;
  return status;
}

// What a CUDA graph holds: the engine, and the copies on its device before and after.
Status Delegate::queue(cuda::Stream stream) {
  for (size_t i = 0; i < input_count_; ++i) TRT_ET_TRY(copy_on_device(arguments_[i], stream));
  {
    const TraceEvent event("enqueue");
    layers_.begin();
    TRT_ET_TRY(slot_->context->enqueue(stream));
  }
  for (size_t i = input_count_; i < arguments_.size(); ++i) {
    TRT_ET_TRY(copy_on_device(arguments_[i], stream));
  }
  return {};
}

Status Delegate::enqueue_with_scratch(cuda::Stream stream) {
  Scratch::Use use(*scratch_);
  TRT_ET_TRY(use.begin(last_stream_));
  if (use.memory() != slot_->scratch) {
    TRT_ET_TRY(wait_and_rebind());
    TRT_ET_TRY(slot_->context->set_memory(use.memory(), use.size()));
    slot_->scratch = use.memory();
  }
  TRT_ET_TRY(enqueue(stream));
  return use.end(stream);
}

Status Delegate::read_shapes() {
  for (size_t i = 0; i < input_count_; ++i) {
    Argument& argument = arguments_[i];
    TRT_ET_TRY(check_shape(argument.expected, *argument.tensor, &argument.shape));
  }
  return {};
}

// Gives the inputs' shapes to the context, and asks it for those of the outputs.
Status Delegate::prepare(cuda::Stream stream) {
  slot_->prepared = false;
  TRT_ET_TRY(wait_and_rebind());
  for (size_t i = 0; i < input_count_; ++i) {
    const Argument& argument = arguments_[i];
    slot_->bound[i].shape = argument.shape;
    TRT_ET_TRY(slot_->context->set_input_shape(argument.binding, argument.shape.dims,
                                               argument.shape.rank));
  }
  TRT_ET_TRY(slot_->context->prepare(stream));
  slot_->late = false;
  for (size_t i = input_count_; i < arguments_.size(); ++i) {
    TRT_ET_TRY(find_output_shape(arguments_[i]));
    slot_->bound[i].shape = arguments_[i].shape;
    slot_->bound[i].late = arguments_[i].late;
    slot_->late = slot_->late || arguments_[i].late;
  }
  slot_->prepared = true;
  return {};
}

Status Delegate::set_addresses() {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    Argument& argument = arguments_[i];
    ContextSlot::Bound& bound = slot_->bound[i];
    argument.last = argument.memory();
    if (!(argument.copied == bound.copied)) {
      if (slot_->replay.captured()) TRT_ET_TRY(wait_and_rebind());
      bound.copied = argument.copied;
    }
    if (argument.memory() == bound.memory) continue;
    TRT_ET_TRY(wait_and_rebind());
    bound.memory = {};
    TRT_ET_TRY(slot_->context->set_address(argument.binding, argument.address, argument.capacity));
    bound.memory = argument.memory();
  }
  return {};
}

// TensorRT forbids to change a context while a run of it is going on, and it is changed by the
// host: so the host waits, where anything changes, for the run before.
Status Delegate::wait_and_rebind() {
  if (in_flight_) TRT_ET_TRY(api_.synchronize_event(done_));
  in_flight_ = false;
  slot_->replay.drop();
  return {};
}

}  // namespace trt_et
