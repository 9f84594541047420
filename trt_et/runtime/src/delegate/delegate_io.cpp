// How a delegate's arguments reach the engine: in place where they are on its device, through
// staging memory where they are on the host, on another GPU, or at an address that it does not
// take.
#include <atomic>
#include <cstring>
#include <string>

#include "common/log.h"
#include "cuda/streams.h"
#include "delegate.h"
#include "event_tracing.h"

namespace trt_et {

using cuda::CopyKind;
using cuda::MemoryKind;

// Once in a process: host tensors cost a copy and a wait at every run.
static void log_staging(const std::string& name, int device) {
  static std::atomic<bool> logged{false};
  if (logged.exchange(true)) return;
  log(LogLevel::info,
      "TensorRTBackend: '%.60s' is in host memory, which is copied at every run of an engine on "
      "cuda:%d; tensors planned on the GPU are not (docs/native.md)",
      name.c_str(), device);
}

// Asks the CUDA table what the tensor's memory is; the tensor's own label is not trusted. Planned
// memory does not move, so the answer is kept until ExecuTorch frees some.
Status Delegate::locate(Argument& argument) {
  const void* data = argument.tensor->const_data_ptr();
  if (data == nullptr) {
    return fail(Error::InvalidArgument, "'%.60s' has no memory: its tensor's data is null",
                argument.expected.name.c_str());
  }
  const uint64_t epoch = cuda::memory_epoch();
  for (const Argument::Known& known : argument.known) {
    if (known.data != data || known.epoch != epoch) continue;
    argument.where = known.where;
    return {};
  }
  TRT_ET_TRY(api_.pointer_info(data, &argument.where));
  argument.known[argument.oldest] = {data, epoch, argument.where};
  argument.oldest = (argument.oldest + 1) % argument.known.size();
  return {};
}

// Staging memory is made at load for programs planned on the host, and else at the first call that
// needs it. The largest shape is known then, so it is made once.
Status Delegate::stage(Argument& argument, size_t bytes) {
  const size_t wanted = bytes > argument.expected.max_bytes ? bytes : argument.expected.max_bytes;
  if (!argument.staging.fits(bytes)) {
    if (in_flight_) TRT_ET_TRY(api_.synchronize_event(done_));
    in_flight_ = false;
    TRT_ET_TRY(argument.staging.reserve(api_, device_, wanted));
  }
  argument.address = argument.staging.data();
  argument.capacity = argument.staging.size();
  return {};
}

static bool reachable(const cuda::PointerInfo& where, int device) {
  return where.kind == MemoryKind::managed ||
         (where.kind == MemoryKind::device && where.device == device);
}

bool Delegate::usable_in_place(const Argument& argument) const {
  return reachable(argument.where, device_) &&
         reinterpret_cast<uintptr_t>(argument.tensor->const_data_ptr()) % alignment_ == 0;
}

Status Delegate::place_input(Argument& argument, cuda::Stream stream, bool* wait) {
  const size_t bytes = argument.tensor->nbytes();
  argument.copied = {};
  if (bytes == 0) {
    // An engine wants an address even where there is nothing to read.
    TRT_ET_TRY(stage(argument, 0));
  } else {
    TRT_ET_TRY(locate(argument));
    if (usable_in_place(argument)) {
      argument.address = argument.tensor->mutable_data_ptr();
      argument.capacity = bytes;
    } else {
      TRT_ET_TRY(copy_in(argument, bytes, stream, wait));
    }
  }
  moved_ = moved_ || !(argument.memory() == argument.last);
  return {};
}

// Nothing has written the state before: this delegate is its first reader in the method.
Status Delegate::clear_state() {
  for (const size_t index : uncleared_) {
    Argument& argument = arguments_[index];
    const size_t bytes = argument.tensor->nbytes();
    if (bytes == 0) continue;
    TRT_ET_TRY(locate(argument));
    const bool on_device = argument.where.kind == MemoryKind::device;
    if (!on_device && argument.where.kind != MemoryKind::managed) continue;
    // The engine may have been moved away from its state.
    cuda::DeviceGuard guard(api_);
    const int device = on_device ? argument.where.device : device_;
    TRT_ET_TRY(guard.enter(device));
    WorkStream stream;
    TRT_ET_TRY(thread_stream(api_, device, &stream));
    TRT_ET_TRY(api_.zero(argument.tensor->mutable_data_ptr(), bytes, stream.handle));
    TRT_ET_TRY(api_.synchronize_stream(stream.handle));
  }
  uncleared_.clear();
  return {};
}

// Between a tensor and staging memory on the engine's own device.
Status Delegate::copy_on_device(Argument& argument, cuda::Stream stream) {
  const auto& [data, bytes] = argument.copied;
  if (data == nullptr) return {};
  const TraceEvent event("d2d");
  const bool in = argument.expected.is_input;
  return api_.copy(in ? argument.address : data, in ? data : argument.address, bytes,
                   CopyKind::device_to_device, stream);
}

// Pinned memory for a copy from or to the host; null: none.
void* Delegate::pinned(const Argument& argument, size_t bytes, bool may_wait) {
  if (argument.where.kind != MemoryKind::host || last_stream_.staging == nullptr) return nullptr;
  return last_stream_.staging->take(bytes, may_wait);
}

// What arrived in pinned memory goes to its tensors.
void Delegate::unstage_outputs() {
  for (size_t i = input_count_; i < arguments_.size(); ++i) {
    Argument& argument = arguments_[i];
    if (argument.arrived == nullptr) continue;
    std::memcpy(argument.tensor->mutable_data_ptr(), argument.arrived, argument.tensor->nbytes());
    argument.arrived = nullptr;
  }
}

// The stream of another GPU that uses this thread's memory there. The legacy stream stands for the
// streams of other libraries, too.
Status Delegate::others_stream(int device, cuda::Stream* stream) {
  WorkStream found;
  TRT_ET_TRY(thread_stream(api_, device, &found));
  *stream = fenced_ && found.source == WorkStream::Source::own ? cuda::kLegacyStream : found.handle;
  return {};
}

Status Delegate::copy_in(Argument& argument, size_t bytes, cuda::Stream stream, bool* wait) {
  TRT_ET_TRY(stage(argument, bytes));
  if (reachable(argument.where, device_)) {
    argument.copied = {argument.tensor->mutable_data_ptr(), bytes};
    return {};
  }
  const TraceEvent event(argument.where.kind == MemoryKind::device ? "peer copy" : "h2d");
  const void* from = argument.tensor->const_data_ptr();
  if (argument.where.kind != MemoryKind::device) {
    log_staging(argument.expected.name, device_);
    void* const staged = pinned(argument, bytes, true);
    if (staged != nullptr) {
      from = std::memcpy(staged, from, bytes);
    } else {
      // CUDA may read host memory after this call, when the planner has reused it.
      *wait = true;
    }
    return api_.copy(argument.address, from, bytes, CopyKind::host_to_device, stream);
  }
  const int other = argument.where.device;
  cuda::Stream others = nullptr;
  cuda::DeviceGuard guard(api_);
  TRT_ET_TRY(guard.enter(other));
  TRT_ET_TRY(others_stream(other, &others));
  TRT_ET_TRY(order_streams(api_, other, others, device_, stream));
  TRT_ET_TRY(api_.copy_peer(argument.address, device_, from, other, bytes, stream));
  // Nor may the other GPU write it again before it has been read.
  return order_streams(api_, device_, stream, other, others);
}

// After the inputs' shapes are set.
Status Delegate::find_output_shape(Argument& argument) {
  const TensorSpec& expected = argument.expected;
  argument.late = false;
  const bool fixed = !expected.dynamic && !expected.any_shape;
  if (!fixed) {
    TRT_ET_TRY(
        slot_->context->output_shape(argument.binding, argument.shape.dims, &argument.shape.rank));
    argument.late = argument.shape.rank < 0;
  }
  if (!fixed && !argument.late) return {};
  if (expected.any_shape) {
    return fail(Error::NotSupported, "the shape of output '%.60s' is not known beforehand",
                expected.name.c_str());
  }
  argument.shape.rank = static_cast<int32_t>(expected.max_shape.size());
  std::copy(expected.max_shape.begin(), expected.max_shape.end(), argument.shape.dims);
  return {};
}

// Whether an output lies on an input as the engine has it. A program that keeps state on the GPU
// passes a buffer and its new value as the same memory, and an engine may write an
// output before it has read all of its inputs. Compared anew only when something moves.
bool Delegate::overlaps_input(Argument& output, size_t bytes) const {
  const Memory here{output.tensor->mutable_data_ptr(), bytes};
  if (!moved_ && here == output.compared) return output.overlaps;
  output.compared = here;
  const auto begin = reinterpret_cast<uintptr_t>(here.data);
  output.overlaps = std::any_of(
      arguments_.begin(), arguments_.begin() + static_cast<std::ptrdiff_t>(input_count_),
      [&](const Argument& input) {
        const auto other = reinterpret_cast<uintptr_t>(input.address);
        return begin < other ? other - begin < bytes : begin - other < input.capacity;
      });
  return output.overlaps;
}

Status Delegate::place_output(Argument& argument) {
  argument.copied = {};
  // Only resizing the tensor shows how large it may become, so the engine gets memory of ours.
  if (argument.late) return stage(argument, argument.expected.max_bytes);
  TRT_ET_TRY(resize_output(argument.expected, argument.shape, *argument.tensor));
  const size_t bytes = argument.tensor->nbytes();
  if (bytes > 0) TRT_ET_TRY(locate(argument));
  void* const data = argument.tensor->mutable_data_ptr();
  if (argument.alias_of >= 0) {
    const Argument& source = arguments_[static_cast<size_t>(argument.alias_of)];
    argument.address = source.address;
    argument.capacity = source.capacity;
  } else if (bytes > 0 && usable_in_place(argument) && !overlaps_input(argument, bytes)) {
    argument.address = data;
    argument.capacity = bytes;
  } else {
    TRT_ET_TRY(stage(argument, bytes));
  }
  if (bytes > 0 && argument.address != data && reachable(argument.where, device_)) {
    argument.copied = {data, bytes};
  }
  return {};
}

Status Delegate::finish_output(Argument& argument, cuda::Stream stream, bool* wait) {
  if (argument.late) {
    MemoryShape shape;
    TRT_ET_TRY(slot_->context->output_shape(argument.binding, shape.dims, &shape.rank));
    TRT_ET_TRY(resize_output(argument.expected, shape, *argument.tensor));
    if (argument.tensor->nbytes() > 0) TRT_ET_TRY(locate(argument));
  }
  const size_t bytes = argument.tensor->nbytes();
  if (bytes == 0 || argument.copied.data != nullptr) return {};  // Part of the run.
  if (argument.address == argument.tensor->const_data_ptr()) return {};
  return copy_out(argument, bytes, stream, wait);
}

Status Delegate::copy_out(Argument& argument, size_t bytes, cuda::Stream stream, bool* wait) {
  void* to = argument.tensor->mutable_data_ptr();
  const bool near = reachable(argument.where, device_);
  const TraceEvent event(near                                        ? "d2d"
                         : argument.where.kind == MemoryKind::device ? "peer copy"
                                                                     : "d2h");
  if (near) return api_.copy(to, argument.address, bytes, CopyKind::device_to_device, stream);
  if (argument.where.kind != MemoryKind::device) {
    log_staging(argument.expected.name, device_);
    *wait = true;
    argument.arrived = pinned(argument, bytes, false);
    return api_.copy(argument.arrived != nullptr ? argument.arrived : to, argument.address, bytes,
                     CopyKind::device_to_host, stream);
  }
  const int other = argument.where.device;
  cuda::Stream others = nullptr;
  cuda::DeviceGuard guard(api_);
  TRT_ET_TRY(guard.enter(other));
  TRT_ET_TRY(others_stream(other, &others));
  // The other GPU may still use what is there, and what comes after must see what is written.
  TRT_ET_TRY(order_streams(api_, other, others, device_, stream));
  TRT_ET_TRY(api_.copy_peer(to, other, argument.address, device_, bytes, stream));
  return order_streams(api_, device_, stream, other, others);
}

}  // namespace trt_et
