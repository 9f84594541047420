// A deserialized engine, shared by its contexts.
#pragma once

#include <vector>

#include "kernel_cache.h"
#include "library.h"

namespace trt_et::tensorrt {

// One binding of the blob, as the engine has it.
struct EngineTensor {
  std::string name;
  bool is_input = false;
  bool dynamic = false;
  int32_t scalar_type = -1;
  nvinfer1::Dims dims{};
};

class LoadedEngine {
 public:
  static Status load(const trt_et_engine_request& request, std::unique_ptr<LoadedEngine>* engine);

  const std::vector<EngineTensor>& tensors() const { return tensors_; }
  Status describe(size_t index, trt_et_binding* out) const;
  int profile_count() const { return engine_->getNbOptimizationProfiles(); }
  nvinfer1::Dims profile_shape(const EngineTensor& tensor, int profile, bool largest) const;
  bool is_dynamic() const;
  // Whether weights come from host memory in each run.
  bool streams() const { return streams_; }
  // Bytes that a context of user memory needs; -1 where this TensorRT does not say.
  int64_t memory_bytes() const { return memory_size(*engine_, library_->version); }

  // Contexts come and go one at a time: TensorRT does not promise more.
  Status create_context(uint32_t flags, std::unique_ptr<nvinfer1::IExecutionContext>* context);
  void free_context(std::unique_ptr<nvinfer1::IExecutionContext> context);

  KernelCache& kernels() { return kernels_; }

 private:
  Status deserialize(const trt_et_engine_request& request);
  Status set_budget(int64_t budget);
  Status read_tensors(const trt_et_engine_request& request);
  Status read_tensor(const trt_et_binding& binding, EngineTensor* tensor) const;

  const Library* library_ = nullptr;
  // In this order: an engine goes before its runtime.
  std::shared_ptr<Runtime> runtime_;
  std::unique_ptr<nvinfer1::ICudaEngine> engine_;
  KernelCache kernels_;
  std::mutex mutex_;
  bool streams_ = false;
  std::vector<EngineTensor> tensors_;
};

bool has_unknown_size(const nvinfer1::Dims& dims);

}  // namespace trt_et::tensorrt
