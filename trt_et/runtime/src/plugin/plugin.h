// Registration of the backend and the allocator with the ExecuTorch runtime in this process.
#pragma once

#include <executorch/runtime/backend/interface.h>

#include "cuda/cuda_api.h"

namespace trt_et {

// The backend TRT_ET_BACKEND_NAME; it lives until the process ends.
executorch::runtime::BackendInterface& backend();

// Whether there is a GPU; the reason if not is reported.
bool has_gpu(cuda::Access access);

struct Registration {
  bool backend = false;  // ours is the registered TensorRTBackend
  const char* problem = "";
};

const Registration& registration();

// Registers our CUDA allocator if there is none. True if ours is the registered one. Loading this
// library does it, but where another module brings an allocator of its own.
bool register_allocator();

}  // namespace trt_et
