// Runs on a real GPU, as a few CUDA kernels (gpu_run.cpp): for tests/gpu, where TensorRT itself
// may not be had.
#pragma once

#include <vector>

#include "run.h"

namespace fake {

// The kernels in the current context, and the numbers of the linear layers in its memory.
class Prepared {
 public:
  Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared();

  bool prepare(const Plan& plan);

  struct Kernels;
  const Kernels* kernels = nullptr;
  std::vector<void*> numbers;  // as the plan's layers; null but for linear ones
};

bool queue(Run run, const Prepared& prepared, cudaStream_t stream);

}  // namespace fake
