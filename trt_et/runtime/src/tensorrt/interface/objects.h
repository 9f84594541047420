// The objects of TensorRT's interface that its library makes, with the methods that we call.
#pragma once

#include <utility>

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

// A method of the object, by its line in slots.def, which has its signature.
#define TRT_ET_METHOD(table, method)                                                              \
  template <class... Arguments>                                                                   \
  auto method(Arguments&&... arguments) const noexcept {                                          \
    return slots::table##_##method::call(implementation_, std::forward<Arguments>(arguments)...); \
  }

class IHostMemory : public Object {
 public:
  TRT_ET_METHOD(HostMemory, data)
  TRT_ET_METHOD(HostMemory, size)
};

class IRuntimeCache : public Object {
 public:
  TRT_ET_METHOD(RuntimeCache, serialize)
  TRT_ET_METHOD(RuntimeCache, deserialize)
};

class IRuntimeConfig : public Object {
 public:
  TRT_ET_METHOD(RuntimeConfig, setExecutionContextAllocationStrategy)
  TRT_ET_METHOD(RuntimeConfig, createRuntimeCache)
  TRT_ET_METHOD(RuntimeConfig, setRuntimeCache)
  TRT_ET_METHOD(RuntimeConfig, setCudaGraphStrategy)
};

class IExecutionContext : public Object {
 public:
  TRT_ET_METHOD(ExecutionContext, setProfiler)
  TRT_ET_METHOD(ExecutionContext, setOptimizationProfileAsync)
  TRT_ET_METHOD(ExecutionContext, setEnqueueEmitsProfile)
  TRT_ET_METHOD(ExecutionContext, setInputShape)
  TRT_ET_METHOD(ExecutionContext, getTensorShape)
  TRT_ET_METHOD(ExecutionContext, setTensorAddress)
  TRT_ET_METHOD(ExecutionContext, inferShapes)
  TRT_ET_METHOD(ExecutionContext, setOutputAllocator)
  TRT_ET_METHOD(ExecutionContext, enqueueV3)
  TRT_ET_METHOD(ExecutionContext, setDeviceMemoryV2)
  TRT_ET_METHOD(ExecutionContext, isStreamCapturable)
};

class ICudaEngine : public Object {
 public:
  TRT_ET_METHOD(CudaEngine, createExecutionContext)
  IExecutionContext* createExecutionContext(IRuntimeConfig* config) const noexcept {
    return slots::CudaEngine_createExecutionContextWithRuntimeConfig::call(implementation_, config);
  }
  TRT_ET_METHOD(CudaEngine, createRuntimeConfig)
  TRT_ET_METHOD(CudaEngine, getNbOptimizationProfiles)
  TRT_ET_METHOD(CudaEngine, getNbIOTensors)
  TRT_ET_METHOD(CudaEngine, getTensorShape)
  TRT_ET_METHOD(CudaEngine, getTensorDataType)
  TRT_ET_METHOD(CudaEngine, getTensorLocation)
  TRT_ET_METHOD(CudaEngine, getTensorIOMode)
  TRT_ET_METHOD(CudaEngine, getTensorFormat)
  TRT_ET_METHOD(CudaEngine, getProfileShape)
  TRT_ET_METHOD(CudaEngine, getStreamableWeightsSize)
  TRT_ET_METHOD(CudaEngine, setWeightStreamingBudgetV2)
  TRT_ET_METHOD(CudaEngine, getWeightStreamingAutomaticBudget)
  TRT_ET_METHOD(CudaEngine, getDeviceMemorySizeV2)
  TRT_ET_METHOD(CudaEngine, getAliasedInputTensor)
};

class IRuntime : public Object {
 public:
  TRT_ET_METHOD(Runtime, deserializeCudaEngine)
  TRT_ET_METHOD(Runtime, setDLACore)
  TRT_ET_METHOD(Runtime, getNbDLACores)
  TRT_ET_METHOD(Runtime, setEngineHostCodeAllowed)
};

}  // namespace trt_et::nvinfer
