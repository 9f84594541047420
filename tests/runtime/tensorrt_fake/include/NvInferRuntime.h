// A small interface with the names of TensorRT's that the leaf uses: our own code, so that the leaf
// can be compiled and driven where there is no TensorRT. Pure virtual classes, implemented in
// fake_*.cpp; not compatible with the real library.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "NvInferVersion.h"

#define NV_TENSORRT_VERSION \
  (NV_TENSORRT_MAJOR * 10000 + NV_TENSORRT_MINOR * 100 + NV_TENSORRT_PATCH)

namespace nvinfer1 {

struct Dims {
  int32_t nbDims;
  int64_t d[8];
};

enum class DataType : int32_t { kFLOAT, kHALF, kINT8, kINT32, kBOOL, kUINT8, kFP8, kBF16, kINT64 };
enum class TensorIOMode : int32_t { kNONE, kINPUT, kOUTPUT };
enum class TensorLocation : int32_t { kDEVICE, kHOST };
enum class TensorFormat : int32_t { kLINEAR };
enum class OptProfileSelector : int32_t { kMIN, kOPT, kMAX };
enum class ExecutionContextAllocationStrategy : int32_t {
  kSTATIC,
  kON_PROFILE_CHANGE,
  kUSER_MANAGED
};

class ILogger {
 public:
  enum class Severity : int32_t { kINTERNAL_ERROR, kERROR, kWARNING, kINFO, kVERBOSE };
  virtual void log(Severity severity, const char* text) noexcept = 0;
  virtual ~ILogger() = default;
};

class IOutputAllocator {
 public:
  virtual void* reallocateOutput(const char* name, void* memory, uint64_t size,
                                 uint64_t alignment) noexcept = 0;
  virtual void notifyShape(const char* name, const Dims& dims) noexcept = 0;
  virtual ~IOutputAllocator() = default;
};

class IProfiler {
 public:
  virtual void reportLayerTime(const char* layer, float ms) noexcept = 0;
  virtual ~IProfiler() = default;
};

class IExecutionContext {
 public:
  virtual ~IExecutionContext() noexcept = default;
  virtual bool setInputShape(const char* name, const Dims& dims) noexcept = 0;
  virtual int32_t inferShapes(int32_t count, const char** names) noexcept = 0;
  virtual Dims getTensorShape(const char* name) const noexcept = 0;
  virtual bool setOptimizationProfileAsync(int32_t profile, cudaStream_t stream) noexcept = 0;
  virtual bool setTensorAddress(const char* name, void* address) noexcept = 0;
  virtual bool setOutputAllocator(const char* name, IOutputAllocator* allocator) noexcept = 0;
  virtual void setDeviceMemoryV2(void* memory, int64_t size) noexcept = 0;
  virtual void setProfiler(IProfiler* profiler) noexcept = 0;
  virtual void setEnqueueEmitsProfile(bool emits) noexcept = 0;
  virtual bool enqueueV3(cudaStream_t stream) noexcept = 0;
  virtual bool isStreamCapturable(cudaStream_t stream) const noexcept = 0;
};

class ICudaEngine {
 public:
  virtual ~ICudaEngine() noexcept = default;
  virtual int32_t getNbIOTensors() const noexcept = 0;
  virtual TensorIOMode getTensorIOMode(const char* name) const noexcept = 0;
  virtual TensorLocation getTensorLocation(const char* name) const noexcept = 0;
  virtual TensorFormat getTensorFormat(const char* name) const noexcept = 0;
  virtual DataType getTensorDataType(const char* name) const noexcept = 0;
  virtual Dims getTensorShape(const char* name) const noexcept = 0;
  virtual int32_t getNbOptimizationProfiles() const noexcept = 0;
  virtual Dims getProfileShape(const char* name, int32_t profile,
                               OptProfileSelector which) const noexcept = 0;
  virtual const char* getAliasedInputTensor(const char* name) const noexcept = 0;
  virtual int64_t getDeviceMemorySizeV2() const noexcept = 0;
  virtual int64_t getStreamableWeightsSize() const noexcept = 0;
  virtual bool setWeightStreamingBudgetV2(int64_t budget) noexcept = 0;
  virtual int64_t getWeightStreamingAutomaticBudget() const noexcept = 0;
  virtual IExecutionContext* createExecutionContext(
      ExecutionContextAllocationStrategy strategy) noexcept = 0;
};

class IRuntime {
 public:
  virtual ~IRuntime() noexcept = default;
  virtual ICudaEngine* deserializeCudaEngine(const void* bytes, size_t size) noexcept = 0;
};

}  // namespace nvinfer1
