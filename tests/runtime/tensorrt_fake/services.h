// What the simulated GPUs offer to the fake TensorRT, and its way of reporting failures.
#pragma once

#include <cstdlib>
#include <string>

#include "../../../trt_et/runtime/simulation/include/trt_et/simulation.h"
#include "plan.h"
#include "tables.h"

namespace fake {

using nvinfer1::Dims;
using nvinfer1::ILogger;

// On a fake driver (tests/support/fake_cuda.c) device memory is host memory, and work is done when
// it is queued.
inline constexpr trt_et_sim_services kOnFakeDriver = {
    [](const char*) { return 0; },
    [](int* device) { return *device = 0; },
    [](size_t size, void** pointer) { return (*pointer = std::malloc(size)) == nullptr ? 1 : 0; },
    [](void* pointer) { return std::free(pointer), 0; },
    [](const void*, size_t, int) { return 0; },
    [](void*, int (*run)(void*), void (*drop)(void*), void* argument) {
      const int code = run(argument);
      drop(argument);
      return code;
    },
    [](int) {},
};

#if defined(TRT_ET_FAKE_ON_GPU)
const trt_et_sim_services* gpu_services();
inline const trt_et_sim_services* g_services = gpu_services();
#else
inline const trt_et_sim_services* g_services = &kOnFakeDriver;
#endif

// As TensorRT does: what is wrong, then where it noticed.
inline void complain(ILogger& logger, const std::string& reason) {
  logger.log(ILogger::Severity::kERROR, reason.c_str());
  logger.log(ILogger::Severity::kERROR, "[fake_nvinfer.cpp] Error Code 4: Internal Error");
}

// Whether the next call may go on.
inline bool call(const char* what, ILogger& logger) {
  if (g_services->call(what) == 0) return true;
  complain(logger, std::string("simulated failure of ") + what);
  return false;
}

// Memory of the device that was current.
class Memory {
 public:
  bool allocate(int64_t size) {
    return size == 0 || g_services->allocate(static_cast<size_t>(size), &pointer_) == 0;
  }
  ~Memory() {
    if (pointer_ != nullptr) (void)g_services->release(pointer_);
  }

 private:
  void* pointer_ = nullptr;
};

inline size_t elements(const Dims& dims) {
  size_t count = 1;
  for (int i = 0; i < dims.nbDims; ++i) count *= static_cast<size_t>(dims.d[i]);
  return count;
}

inline bool same_rank_within(const Dims& dims, const Dims& low, const Dims& high) {
  bool fits = dims.nbDims == low.nbDims && dims.nbDims == high.nbDims;
  for (int i = 0; fits && i < dims.nbDims; ++i) {
    fits = dims.d[i] >= low.d[i] && dims.d[i] <= high.d[i];
  }
  return fits;
}

inline size_t element_size(nvinfer1::DataType type) {
  return type == nvinfer1::DataType::kINT64 ? 8 : 4;
}

}  // namespace fake
