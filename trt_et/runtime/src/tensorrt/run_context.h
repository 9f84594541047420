// One execution context: shapes, optimization profile, addresses, and runs.
#pragma once

#include <vector>

#include "loaded_engine.h"

namespace trt_et::tensorrt {

// Takes the shape, and hands out the memory, of an output whose shape depends on the data.
class DataDependentOutput final : public nvinfer1::IOutputAllocator {
 public:
#if !defined(TRT_ET_TENSORRT_RTX)
  void* reallocateOutput(const char*, void*, uint64_t size, uint64_t) noexcept override {
    return size <= capacity ? address : nullptr;
  }
#endif
  void* reallocateOutputAsync(const char*, void*, uint64_t size, uint64_t,
                              cudaStream_t) noexcept override {
    return size <= capacity ? address : nullptr;
  }
  void notifyShape(const char*, const nvinfer1::Dims& dims) noexcept override {
    shape = dims;
    notified = true;
  }

  void* address = nullptr;
  uint64_t capacity = 0;
  nvinfer1::Dims shape{};
  bool notified = false;
  bool attached = false;
};

class LayerTimes final : public nvinfer1::IProfiler {
 public:
  void reportLayerTime(const char* layer, float ms) noexcept override {
    if (report != nullptr) report(user, layer, ms);
  }

  void (*report)(void* user, const char* layer, float ms) = nullptr;
  void* user = nullptr;
};

class RunContext {
 public:
  static Status create(LoadedEngine& engine, uint32_t flags, std::unique_ptr<RunContext>* context);
  ~RunContext() { engine_.free_context(std::move(context_)); }

  Status set_input_shape(size_t index, const int64_t* dims, int32_t rank);
  Status prepare(void* stream);
  Status output_shape(size_t index, int64_t* dims, int32_t* rank);
  Status set_address(size_t index, void* address, size_t capacity);
  Status enqueue(void* stream);
  Status set_profile(int profile);
  int profile() const { return profile_; }
  Status set_memory(void* memory, size_t bytes);
  Status check_capture(void* stream);
  Status profile_layers(void (*report)(void*, const char*, float), void* user);

 private:
  explicit RunContext(LoadedEngine& engine) : engine_(engine), shapes_(engine.tensors().size()) {}

  bool fits(int profile) const;
  double volume(int profile) const;
  Status choose_profile(void* stream);
  Status set_shapes();
  Status find_data_dependent_outputs();

  LoadedEngine& engine_;
  std::unique_ptr<nvinfer1::IExecutionContext> context_;
  std::vector<nvinfer1::Dims> shapes_;                                // of the inputs
  std::vector<std::unique_ptr<DataDependentOutput>> data_dependent_;  // null for the inputs
  int profile_ = 0;
  int pinned_ = -1;  // by the caller
  LayerTimes times_;
};

}  // namespace trt_et::tensorrt
