// A program with float32 inputs and outputs on cuda:0, which gets the same number everywhere.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cuda/cuda_api.h"
#include "loaded_method.h"

namespace trt_et::gpu_check {

using Floats = std::vector<float>;

void check(const Status& status, const char* what);

// CUDA, as the plugin uses it; cuda:0 is current for the calling thread from now on.
cuda::Api& cuda0();

class BoundProgram {
 public:
  explicit BoundProgram(const std::string& path);

  // Copies as ExecuTorch's own CUDA allocator does, on the legacy stream unless another is named,
  // and without a wait but in read().
  void write(float value, cuda::Stream stream = cuda::kLegacyStream);
  void execute() { method_.execute(); }
  // Whether a run is refused.
  bool refuses() { return method_.method().execute() != executorch::runtime::Error::Ok; }
  Floats read(cuda::Stream stream = cuda::kLegacyStream);

  // The inputs are there, and nobody reads them any more.
  Floats run_alone(float value);
  // What must not overtake the run is queued before and behind it.
  Floats run_between_copies(float value, cuda::Stream stream = cuda::kLegacyStream);
  // Runs on memory that the caller has: of all inputs, then of all outputs, one behind the other.
  Floats run_on(float value, float* memory);
  size_t floats() const;

 private:
  struct Tensor {
    void* data;
    size_t bytes;
  };
  static void add(std::vector<Tensor>& tensors, const executorch::runtime::EValue& value);

  bench::LoadedMethod method_;
  std::vector<Tensor> inputs_, outputs_;
  std::map<int, std::vector<Floats>> patterns_;
};

// A program's outputs where all inputs are 1, and where they are 2; ends the process if these are
// the same, for then nothing could be seen of runs in another order.
std::map<int, Floats> expected_of(const std::string& path);

}  // namespace trt_et::gpu_check
