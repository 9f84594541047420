// One stream per thread and device. Delegates and the allocator's copies queue on the same stream,
// so that what a thread asks for happens in that order and only a copy to the host has to wait.
//
// These streams are blocking ones: what is queued on a device's legacy stream, as ExecuTorch's own
// CUDA allocator and most other code do, comes before or behind a run as it was queued, without a
// call of ours. Streams of other threads and of other libraries are not ordered by this.
#pragma once

#include "cuda_api.h"

namespace trt_et {

// Where a thread's work on a device goes.
struct WorkStream {
  enum class Source { own, given, guard };

  cuda::Stream handle = nullptr;
  // Equal numbers mean the same stream for certain. 0 in a CallerStreamGuard: the handle may be
  // that of another stream tomorrow.
  uint64_t identity = 0;
  Source source = Source::own;   // given: by use_stream; guard: by ExecuTorch's CallerStreamGuard
  bool may_be_captured = false;  // by the caller, who knows it
  bool is_green = false;         // of a green context, a part of the GPU's multiprocessors

  bool is(const WorkStream& other) const { return identity != 0 && identity == other.identity; }
};

// This thread's stream of `device`; its own is made at first use. The device must be current.
Status thread_stream(cuda::Api& api, int device, WorkStream* stream);

// Honours CallerStreamGuard of ExecuTorch's CUDA extension, if that is loaded under this name.
void find_caller_streams(const char* extension);

// See trt_et_set_caller_stream_source.
using CallerStreamSource = int (*)(void** stream);
void set_caller_stream_source(CallerStreamSource source);

// Makes `device` current, and gives this thread's stream of it. Refuses a device that is not there.
Status enter_stream(cuda::Api& api, int device, cuda::DeviceGuard& guard, WorkStream* stream);

// The refusal of work that ends in waiting, where that would end a capture of the caller's.
Status check_not_captured(cuda::Api& api, const WorkStream& stream, const char* what);

// See trt_et_wait.
Status wait_for_stream(cuda::Api& api, const WorkStream& stream);
// Waits for the calling thread's streams, ours and given ones.
Status wait_for_thread(cuda::Api& api);

// See trt_et_get_stream.
Status caller_gets_stream(cuda::Api& api, int device, cuda::Stream* stream);

// See trt_et_use_stream.
Status use_stream(cuda::Api& api, int device, cuda::Stream stream);

// Makes `later` (of later_device) wait for what is queued on `earlier` (of earlier_device).
Status order_streams(cuda::Api& api, int earlier_device, cuda::Stream earlier, int later_device,
                     cuda::Stream later);

}  // namespace trt_et
