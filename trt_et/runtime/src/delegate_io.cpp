// How a delegate's arguments reach the engine: in place where they are on its device, through
// staging memory where they are on the host or on another GPU.
#include "delegate.h"
#include "event_tracing.h"
#include "streams.h"

namespace trt_et {

using cuda::CopyKind;
using cuda::MemoryKind;

// Asks the CUDA table what the tensor's memory is; the tensor's own label is not trusted.
Status Delegate::locate(Argument& argument) {
  const void* data = argument.tensor->const_data_ptr();
  if (data == nullptr) {
    return fail(Error::InvalidArgument, "'%.60s' has no memory: its tensor's data is null",
                argument.expected.name.c_str());
  }
  return api_.pointer_info(data, &argument.where);
}

// Staging memory is made at the first call that needs it, not at load: programs whose memory is
// planned on the device never do. The largest shape is known then, so it is made once.
Status Delegate::stage(Argument& argument, size_t bytes) {
  const size_t wanted = bytes > argument.expected.max_bytes ? bytes : argument.expected.max_bytes;
  if (!argument.staging.fits(bytes)) {
    if (has_run_) TRT_ET_TRY(api_.synchronize_event(done_));
    TRT_ET_TRY(argument.staging.reserve(api_, device_, wanted));
  }
  argument.address = argument.staging.data();
  return {};
}

static bool reachable(const cuda::PointerInfo& where, int device) {
  return where.kind == MemoryKind::managed ||
         (where.kind == MemoryKind::device && where.device == device);
}

Status Delegate::bind_input(Argument& argument, cuda::Stream stream, bool* wait) {
  const size_t bytes = argument.tensor->nbytes();
  if (bytes == 0) {
    // An engine wants an address even where there is nothing to read.
    TRT_ET_TRY(stage(argument, 0));
  } else {
    TRT_ET_TRY(locate(argument));
    if (reachable(argument.where, device_)) {
      argument.address = argument.tensor->mutable_data_ptr();
    } else {
      TRT_ET_TRY(copy_in(argument, bytes, stream, wait));
    }
  }
  return context_->bind(argument.binding, argument.address, argument.shape.dims,
                        argument.shape.rank);
}

Status Delegate::copy_in(Argument& argument, size_t bytes, cuda::Stream stream, bool* wait) {
  const TraceEvent event(argument.where.kind == MemoryKind::device ? "peer copy" : "h2d");
  TRT_ET_TRY(stage(argument, bytes));
  const void* from = argument.tensor->const_data_ptr();
  if (argument.where.kind != MemoryKind::device) {
    // Pinned memory is read after this call, when the planner may have reused it: wait at the end.
    if (argument.where.kind == MemoryKind::pinned) *wait = true;
    return api_.copy(argument.address, from, bytes, CopyKind::host_to_device, stream);
  }
  const int other = argument.where.device;
  cuda::Stream others = nullptr;
  cuda::DeviceGuard guard(api_);
  TRT_ET_TRY(guard.enter(other));
  TRT_ET_TRY(thread_stream(api_, other, &others));
  TRT_ET_TRY(order_streams(api_, other, others, device_, stream));
  TRT_ET_TRY(api_.copy_peer(argument.address, device_, from, other, bytes, stream));
  // Nor may the other GPU write it again before it has been read.
  return order_streams(api_, device_, stream, other, others);
}

Status Delegate::bind_output(Argument& argument, cuda::Stream stream) {
  (void)stream;
  const Expectation& expected = argument.expected;
  argument.late = false;
  if (!expected.dynamic && !expected.any_shape) {
    argument.shape.rank = static_cast<int32_t>(expected.max_shape.size());
    std::copy(expected.max_shape.begin(), expected.max_shape.end(), argument.shape.dims);
  } else {
    TRT_ET_TRY(context_->output_shape(argument.binding, argument.shape.dims, &argument.shape.rank));
    argument.late = argument.shape.rank < 0;
  }
  if (argument.late) {
    // The tensor's room is only told by resizing it, so the engine gets memory of ours.
    if (expected.any_shape) {
      return fail(Error::NotSupported, "the shape of output '%.60s' is not known beforehand",
                  expected.name.c_str());
    }
    argument.shape.rank = static_cast<int32_t>(expected.max_shape.size());
    std::copy(expected.max_shape.begin(), expected.max_shape.end(), argument.shape.dims);
    TRT_ET_TRY(stage(argument, expected.max_bytes));
  } else {
    TRT_ET_TRY(resize_output(expected, argument.shape, *argument.tensor));
    const size_t bytes = argument.tensor->nbytes();
    if (bytes > 0) TRT_ET_TRY(locate(argument));
    if (argument.alias_of >= 0) {
      argument.address = arguments_[static_cast<size_t>(argument.alias_of)].address;
    } else if (bytes > 0 && reachable(argument.where, device_)) {
      argument.address = argument.tensor->mutable_data_ptr();
    } else {
      TRT_ET_TRY(stage(argument, bytes));
    }
  }
  return context_->bind(argument.binding, argument.address, argument.shape.dims,
                        argument.shape.rank);
}

Status Delegate::finish_output(Argument& argument, cuda::Stream stream, bool* wait) {
  if (argument.late) {
    TRT_ET_TRY(context_->output_shape(argument.binding, argument.shape.dims, &argument.shape.rank));
    TRT_ET_TRY(resize_output(argument.expected, argument.shape, *argument.tensor));
    if (argument.tensor->nbytes() > 0) TRT_ET_TRY(locate(argument));
  }
  const size_t bytes = argument.tensor->nbytes();
  if (bytes == 0 || argument.address == argument.tensor->const_data_ptr()) return {};
  return copy_out(argument, bytes, stream, wait);
}

Status Delegate::copy_out(Argument& argument, size_t bytes, cuda::Stream stream, bool* wait) {
  void* to = argument.tensor->mutable_data_ptr();
  const bool on_device = reachable(argument.where, device_);
  const TraceEvent event(on_device                                   ? "d2d"
                         : argument.where.kind == MemoryKind::device ? "peer copy"
                                                                     : "d2h");
  if (on_device) {
    return api_.copy(to, argument.address, bytes, CopyKind::device_to_device, stream);
  }
  if (argument.where.kind != MemoryKind::device) {
    *wait = true;
    return api_.copy(to, argument.address, bytes, CopyKind::device_to_host, stream);
  }
  const int other = argument.where.device;
  cuda::Stream others = nullptr;
  cuda::DeviceGuard guard(api_);
  TRT_ET_TRY(guard.enter(other));
  TRT_ET_TRY(thread_stream(api_, other, &others));
  // The other GPU may still use what is there, and what comes after must see what is written.
  TRT_ET_TRY(order_streams(api_, other, others, device_, stream));
  TRT_ET_TRY(api_.copy_peer(to, other, argument.address, device_, bytes, stream));
  return order_streams(api_, device_, stream, other, others);
}

}  // namespace trt_et
