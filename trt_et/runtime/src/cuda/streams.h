// One stream per thread and device. Delegates and the allocator's copies queue on the same stream,
// so that what a thread asks for happens in that order and only a copy to the host has to wait.
//
// Work of different threads is not ordered by this. A result that is left on the device belongs to
// the thread that executed, until that thread (or an event) has waited for it.
#pragma once

#include "cuda_api.h"

namespace trt_et {

// This thread's stream of `device`, made at first use. The device must be current.
Status thread_stream(cuda::Api& api, int device, cuda::Stream* stream);

// Looks for ExecuTorch's CUDA extension, whose CallerStreamGuard is honoured from then on. A
// library that is loaded later is found the next time.
void find_caller_streams();

// See trt_et_use_stream.
Status use_stream(cuda::Api& api, int device, cuda::Stream stream);

// Waits for the streams that all threads have on `device`, as cudaFree does. A failure of another
// thread's work is reported to the log and not returned: it is that thread's.
Status synchronize_device(cuda::Api& api, int device);

// Makes `later` (of later_device) wait for what is queued on `earlier` (of earlier_device). Leaves
// later_device current.
Status order_streams(cuda::Api& api, int earlier_device, cuda::Stream earlier, int later_device,
                     cuda::Stream later);

}  // namespace trt_et
