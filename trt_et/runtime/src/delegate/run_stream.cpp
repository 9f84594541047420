#include "run_stream.h"

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/device_allocator.h>

#include "cuda/device_allocator.h"

namespace trt_et {

void RunStream::clear() {
  for (cuda::Event* event : {&done_, &before_}) {
    if (*event != nullptr) (void)report(api_.destroy_event(*event));
    *event = nullptr;
  }
}

// ExecuTorch's CUDA backend runs on blocking streams of its own; its allocator does not know of
// trt_et_use_stream.
Status RunStream::create(bool blocking_waits) {
  namespace runtime = executorch::runtime;
  blocking_waits_ = blocking_waits;
  TRT_ET_TRY(api_.create_event(&done_, blocking_waits));
  beside_cuda_backend_ = runtime::get_backend_class("CudaBackend") != nullptr;
  const auto* allocator = runtime::get_device_allocator(runtime::etensor::DeviceType::CUDA);
  const bool others = allocator != nullptr && allocator != &cuda_allocator();
  return beside_cuda_backend_ || others ? api_.create_event(&before_) : Status{};
}

// Runs of one context must not overlap: a new stream first waits for the last run on the old one.
Status RunStream::join(const WorkStream& stream) {
  if (in_flight_ && !stream.is(stream_)) TRT_ET_TRY(api_.wait_event(stream.handle, done_));
  stream_ = stream;
  // Within a CallerStreamGuard, all of ExecuTorch's own work is on the caller's stream, too.
  fenced_ = before_ != nullptr && stream.source != WorkStream::Source::guard &&
            stream.handle != cuda::kLegacyStream &&
            (beside_cuda_backend_ || stream.source == WorkStream::Source::given);
  if (!fenced_) return {};
  TRT_ET_TRY(api_.record_event(before_, cuda::kLegacyStream));
  return api_.wait_event(stream.handle, before_);
}

// What other libraries queue on the legacy stream, or on blocking streams of their own, from now on
// comes after this run.
Status RunStream::leave() {
  TRT_ET_TRY(api_.record_event(done_, handle()));
  in_flight_ = true;
  return fenced_ ? api_.wait_event(cuda::kLegacyStream, done_) : Status{};
}

Status RunStream::drain() {
  Status status;
  if (blocking_waits_) {
    status = api_.record_event(done_, handle());
    if (status.ok()) status = api_.synchronize_event(done_);
  } else {
    status = api_.synchronize_stream(handle());
  }
  in_flight_ = false;
  return status;
}

Status RunStream::wait_for_last() {
  const bool in_flight = in_flight_;
  in_flight_ = false;
  return in_flight ? api_.synchronize_event(done_) : Status{};
}

// Where other libraries use the memory, the legacy stream orders their streams, too.
Status RunStream::find_on(int device, cuda::Stream* stream) const {
  WorkStream found;
  TRT_ET_TRY(thread_stream(api_, device, &found));
  *stream = fenced_ && found.source == WorkStream::Source::own ? cuda::kLegacyStream : found.handle;
  return {};
}

}  // namespace trt_et
