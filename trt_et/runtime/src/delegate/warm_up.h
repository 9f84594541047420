// The load option warm_up_at_load.
#pragma once

#include <vector>

#include "argument.h"
#include "blob/blob.h"
#include "contexts.h"
#include "cuda/cuda_api.h"

namespace trt_et {

// Runs an engine with its smallest, its typical and its largest shapes, so that the first calls
// find its kernels compiled and loaded. The inputs are zeros in memory that is freed afterwards:
// neither a tensor nor state is read or written. A run that fails is logged; the first call with
// these shapes reports the error to its caller. The device must be current.
void warm_up(cuda::Api& api, int device, const Blob& blob, std::vector<Argument>& arguments,
             Contexts& contexts);

}  // namespace trt_et
