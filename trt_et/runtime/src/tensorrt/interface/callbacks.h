// The classes of TensorRT's interface that its user implements. TensorRT calls them through their
// own tables of virtual functions, so the order of the methods here, the destructor's too, is the
// interface. From TensorRT 11 and TensorRT-RTX 1.5 on every one begins with its versioned base.
#pragma once

#include "slots.h"

namespace trt_et::nvinfer {

class TRT_ET_VENDOR_CLASS IVersionedInterface {
 public:
  virtual APILanguage getAPILanguage() const noexcept { return APILanguage::kCPP; }
  virtual InterfaceInfo getInterfaceInfo() const noexcept = 0;
  virtual ~IVersionedInterface() noexcept = default;
};

#if TRT_ET_INTERFACE >= 11
class TRT_ET_VENDOR_CLASS ILogger : public IVersionedInterface {
#else
class TRT_ET_VENDOR_CLASS ILogger {
#endif
 public:
  enum class Severity : int32_t {
    kINTERNAL_ERROR = 0,
    kERROR = 1,
    kWARNING = 2,
    kINFO = 3,
    kVERBOSE = 4
  };
#if TRT_ET_INTERFACE >= 11
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"ILogger", 1, 0}; }
#endif
  virtual void log(Severity severity, const char* text) noexcept = 0;
  virtual ~ILogger() = default;
};

#if TRT_ET_INTERFACE >= 11
class TRT_ET_VENDOR_CLASS IProfiler : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IProfiler", 1, 0}; }
#else
class TRT_ET_VENDOR_CLASS IProfiler {
 public:
#endif
  virtual void reportLayerTime(const char* layer, float ms) noexcept = 0;
  virtual ~IProfiler() noexcept = default;
};

class TRT_ET_VENDOR_CLASS IOutputAllocator : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IOutputAllocator", 1, 0}; }
#if !defined(TRT_ET_TENSORRT_RTX)  // TensorRT-RTX's table does without it.
  virtual void* reallocateOutput(const char*, void*, uint64_t, uint64_t) noexcept {
    return nullptr;
  }
#endif
  virtual void* reallocateOutputAsync(const char* name, void* memory, uint64_t size,
                                      uint64_t alignment, cudaStream_t stream) noexcept = 0;
  virtual void notifyShape(const char* name, const Dims& dims) noexcept = 0;
};

class TRT_ET_VENDOR_CLASS IProgressMonitor : public IVersionedInterface {
 public:
  InterfaceInfo getInterfaceInfo() const noexcept override { return {"IProgressMonitor", 1, 0}; }
  virtual void phaseStart(const char* phase, const char* parent, int32_t steps) noexcept = 0;
  // False ends the build.
  virtual bool stepComplete(const char* phase, int32_t step) noexcept = 0;
  virtual void phaseFinish(const char* phase) noexcept = 0;
};

}  // namespace trt_et::nvinfer
