// Opening NVIDIA's libraries at run time: trt-et is built and started without them.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace trt_et::cuda {

// Opens the driver, libcuda.so.1, and initialises it. This comes before any other NVIDIA library is
// touched: TensorRT without a driver returns garbage pointers.
Status open_driver(void** library);

// Opens the newest CUDA runtime, libcudart, that the opened driver can run: the file that
// TRT_ET_CUDART_LIBRARY names, else what the loader path has, else pip's nvidia-cuda-runtime wheel
// beside this package or ExecuTorch's.
Status open_runtime(void* driver_library, void** library);

}  // namespace trt_et::cuda
