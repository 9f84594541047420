// Registration of the backend and the allocator with the ExecuTorch runtime in this process.
#pragma once

namespace trt_et {

struct Registration {
  bool backend = false;    // ours is the registered TensorRTBackend
  bool allocator = false;  // ours is the registered CUDA allocator
  const char* problem = "";
};

const Registration& registration();

}  // namespace trt_et
