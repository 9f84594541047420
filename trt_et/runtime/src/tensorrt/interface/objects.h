// The objects of TensorRT's interface that its library makes, with the methods that we call.
#pragma once

#include "callbacks.h"

namespace trt_et::nvinfer {

// How every such object begins: a table with the destructor alone, and the object with the table
// that slots.def describes. We never make one, so that nothing else of it matters.
class TRT_ET_VENDOR_CLASS Object {
 public:
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() noexcept = 0;

 protected:
  Object() = default;
  void* implementation_ = nullptr;
};

inline Object::~Object() noexcept = default;

class IHostMemory : public Object {
 public:
  void* data() const noexcept { return slots::HostMemory_data::call(implementation_); }
  size_t size() const noexcept { return slots::HostMemory_size::call(implementation_); }
};

class IRuntimeCache : public Object {
 public:
  IHostMemory* serialize() const noexcept {
    return slots::RuntimeCache_serialize::call(implementation_);
  }
  bool deserialize(const void* bytes, size_t size) noexcept {
    return slots::RuntimeCache_deserialize::call(implementation_, bytes, size);
  }
};

class IRuntimeConfig : public Object {
 public:
  void setExecutionContextAllocationStrategy(ExecutionContextAllocationStrategy which) noexcept {
    slots::RuntimeConfig_setExecutionContextAllocationStrategy::call(implementation_, which);
  }
  IRuntimeCache* createRuntimeCache() const noexcept {
    return slots::RuntimeConfig_createRuntimeCache::call(implementation_);
  }
  bool setRuntimeCache(const IRuntimeCache& cache) noexcept {
    return slots::RuntimeConfig_setRuntimeCache::call(implementation_, cache);
  }
  bool setCudaGraphStrategy(CudaGraphStrategy strategy) noexcept {
    return slots::RuntimeConfig_setCudaGraphStrategy::call(implementation_, strategy);
  }
};

class IExecutionContext : public Object {
 public:
  void setProfiler(IProfiler* profiler) noexcept {
    slots::ExecutionContext_setProfiler::call(implementation_, profiler);
  }
  bool setOptimizationProfileAsync(int32_t profile, cudaStream_t stream) noexcept {
    return slots::ExecutionContext_setOptimizationProfileAsync::call(implementation_, profile,
                                                                     stream);
  }
  void setEnqueueEmitsProfile(bool emits) noexcept {
    slots::ExecutionContext_setEnqueueEmitsProfile::call(implementation_, emits);
  }
  bool setInputShape(const char* name, const Dims& dims) noexcept {
    return slots::ExecutionContext_setInputShape::call(implementation_, name, dims);
  }
  Dims getTensorShape(const char* name) const noexcept {
    return slots::ExecutionContext_getTensorShape::call(implementation_, name);
  }
  bool setTensorAddress(const char* name, void* address) noexcept {
    return slots::ExecutionContext_setTensorAddress::call(implementation_, name, address);
  }
  int32_t inferShapes(int32_t count, const char** names) noexcept {
    return slots::ExecutionContext_inferShapes::call(implementation_, count, names);
  }
  bool setOutputAllocator(const char* name, IOutputAllocator* allocator) noexcept {
    return slots::ExecutionContext_setOutputAllocator::call(implementation_, name, allocator);
  }
  bool enqueueV3(cudaStream_t stream) noexcept {
    return slots::ExecutionContext_enqueueV3::call(implementation_, stream);
  }
  void setDeviceMemoryV2(void* memory, int64_t size) noexcept {
    slots::ExecutionContext_setDeviceMemoryV2::call(implementation_, memory, size);
  }
  bool isStreamCapturable(cudaStream_t stream) const noexcept {
    return slots::ExecutionContext_isStreamCapturable::call(implementation_, stream);
  }
};

class ICudaEngine : public Object {
 public:
  IExecutionContext* createExecutionContext(ExecutionContextAllocationStrategy which) noexcept {
    return slots::CudaEngine_createExecutionContext::call(implementation_, which);
  }
  IExecutionContext* createExecutionContext(IRuntimeConfig* config) noexcept {
    return slots::CudaEngine_createExecutionContextWithRuntimeConfig::call(implementation_, config);
  }
  IRuntimeConfig* createRuntimeConfig() noexcept {
    return slots::CudaEngine_createRuntimeConfig::call(implementation_);
  }
  int32_t getNbOptimizationProfiles() const noexcept {
    return slots::CudaEngine_getNbOptimizationProfiles::call(implementation_);
  }
  int32_t getNbIOTensors() const noexcept {
    return slots::CudaEngine_getNbIOTensors::call(implementation_);
  }
  Dims getTensorShape(const char* name) const noexcept {
    return slots::CudaEngine_getTensorShape::call(implementation_, name);
  }
  DataType getTensorDataType(const char* name) const noexcept {
    return slots::CudaEngine_getTensorDataType::call(implementation_, name);
  }
  TensorLocation getTensorLocation(const char* name) const noexcept {
    return slots::CudaEngine_getTensorLocation::call(implementation_, name);
  }
  TensorIOMode getTensorIOMode(const char* name) const noexcept {
    return slots::CudaEngine_getTensorIOMode::call(implementation_, name);
  }
  TensorFormat getTensorFormat(const char* name) const noexcept {
    return slots::CudaEngine_getTensorFormat::call(implementation_, name);
  }
  Dims getProfileShape(const char* name, int32_t profile, OptProfileSelector which) const noexcept {
    return slots::CudaEngine_getProfileShape::call(implementation_, name, profile, which);
  }
  int64_t getStreamableWeightsSize() const noexcept {
    return slots::CudaEngine_getStreamableWeightsSize::call(implementation_);
  }
  bool setWeightStreamingBudgetV2(int64_t budget) noexcept {
    return slots::CudaEngine_setWeightStreamingBudgetV2::call(implementation_, budget);
  }
  int64_t getWeightStreamingAutomaticBudget() const noexcept {
    return slots::CudaEngine_getWeightStreamingAutomaticBudget::call(implementation_);
  }
  int64_t getDeviceMemorySizeV2() const noexcept {
    return slots::CudaEngine_getDeviceMemorySizeV2::call(implementation_);
  }
  const char* getAliasedInputTensor(const char* name) const noexcept {
    return slots::CudaEngine_getAliasedInputTensor::call(implementation_, name);
  }
};

class IRuntime : public Object {
 public:
  ICudaEngine* deserializeCudaEngine(const void* bytes, size_t size) noexcept {
    return slots::Runtime_deserializeCudaEngine::call(implementation_, bytes, size);
  }
  void setDLACore(int32_t core) noexcept { slots::Runtime_setDLACore::call(implementation_, core); }
  int32_t getNbDLACores() const noexcept {
    return slots::Runtime_getNbDLACores::call(implementation_);
  }
  void setEngineHostCodeAllowed(bool allowed) noexcept {
    slots::Runtime_setEngineHostCodeAllowed::call(implementation_, allowed);
  }
};

}  // namespace trt_et::nvinfer
