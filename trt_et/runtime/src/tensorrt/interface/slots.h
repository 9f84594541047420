// The lines of slots.def as types, for the layout of one major version: 10 or 11 (TensorRT-RTX's
// is that of 11).
#pragma once

#include "types.h"

namespace trt_et::nvinfer {

class IBuilderConfig;
class IConstantLayer;
class ICudaEngine;
class IElementWiseLayer;
class IExecutionContext;
class IHostMemory;
class ILayer;
class INetworkDefinition;
class IOptimizationProfile;
class IOutputAllocator;
class IProfiler;
class IProgressMonitor;
class IRuntimeCache;
class IRuntimeConfig;
class ITensor;

template <int number, int since, typename Signature>
struct Slot;

template <int number, int since, typename R, typename... Arguments>
struct Slot<number, since, R(Arguments...)> {
  using Function = R (*)(void*, Arguments...);
  static constexpr int kNumber = number;
  // First minor version of TensorRT 10 that has it. Every TensorRT 11 has all.
  static constexpr int kSinceMinor = TRT_ET_INTERFACE == 10 ? since : 0;

  // Calls it for the object at `implementation`, which begins with the pointer to its table. On
  // x86-64 and aarch64 a virtual method is called as a function whose first argument is the object.
  static R call(void* implementation, Arguments... arguments) noexcept {
    void* const* table = *static_cast<void* const* const*>(implementation);
    return reinterpret_cast<Function>(table[number])(implementation, arguments...);
  }
};

namespace slots {
#define TRT_ET_SLOT(table, method, of_10, since_10, of_11, ...) \
  using table##_##method = Slot<(TRT_ET_INTERFACE == 10 ? of_10 : of_11), since_10, __VA_ARGS__>;
#define TRT_ET_RTX_SLOT(table, method, number, ...) \
  using table##_##method = Slot<number, 0, __VA_ARGS__>;
#define TRT_ET_CALLBACK(...)
#include "slots.def"
#undef TRT_ET_SLOT
#undef TRT_ET_RTX_SLOT
#undef TRT_ET_CALLBACK
}  // namespace slots

}  // namespace trt_et::nvinfer
