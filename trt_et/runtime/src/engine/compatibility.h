// Whether an engine may run on a GPU, from what its blob says and before any library is asked.
#pragma once

#include "blob/blob.h"
#include "cuda/cuda_api.h"

namespace trt_et {

// DelegateInvalidCompatibility, naming both sides, where TensorRT's rules forbid it: an engine runs
// on the compute capability that it was built for; a hardware-compatible one on Ampere and later; a
// TensorRT-RTX engine on its targets, which are Ampere and later where none are named. A blob that
// says nothing is not refused here.
Status check_compatibility(cuda::Api& api, const Blob& blob, int device);

// "linux_x86_64", as blobs name this platform; empty if they have no name for it.
const char* platform_name();

}  // namespace trt_et
