// The plain types of TensorRT's interface, from TensorRT 10 and TensorRT-RTX 1.5 on. Our own
// description: names and values as far as we use them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#if !defined(TRT_ET_INTERFACE)
#error "TRT_ET_INTERFACE says whose layout: 10 or 11"
#endif

// A class with virtual methods whose other half is in TensorRT's library. Without this, clang's
// whole-program optimization of a library with hidden symbols takes a call through it for
// unreachable, because it sees no derived class.
#if defined(__clang__)
#define TRT_ET_VENDOR_CLASS [[clang::lto_visibility_public]]
#else
#define TRT_ET_VENDOR_CLASS
#endif

namespace trt_et::nvinfer {

struct Dims {
  int32_t nbDims;
  int64_t d[8];
};

enum class DataType : int32_t {
  kFLOAT = 0,
  kHALF = 1,
  kINT8 = 2,
  kINT32 = 3,
  kBOOL = 4,
  kUINT8 = 5,
  kFP8 = 6,
  kBF16 = 7,
  kINT64 = 8
};
enum class TensorIOMode : int32_t { kNONE = 0, kINPUT = 1, kOUTPUT = 2 };
enum class TensorLocation : int32_t { kDEVICE = 0, kHOST = 1 };
enum class TensorFormat : int32_t { kLINEAR = 0 };
enum class OptProfileSelector : int32_t { kMIN = 0, kOPT = 1, kMAX = 2 };
enum class ExecutionContextAllocationStrategy : int32_t {
  kSTATIC = 0,
  kON_PROFILE_CHANGE = 1,
  kUSER_MANAGED = 2
};
enum class MemoryPoolType : int32_t { kWORKSPACE = 0 };
#if TRT_ET_INTERFACE == 10
enum class BuilderFlag : int32_t { kWEIGHT_STREAMING = 21 };
enum class NetworkDefinitionCreationFlag : int32_t { kSTRONGLY_TYPED = 1 };
#else
enum class BuilderFlag : int32_t {
  kWEIGHT_STREAMING = 20,
  kREQUIRE_USER_ALLOCATION = 28  // RTX only
};
enum class NetworkDefinitionCreationFlag : int32_t { kSTRONGLY_TYPED = 0 };
#endif
enum class LayerType : int32_t { kACTIVATION = 2, kUNARY = 11, kMATRIX_MULTIPLY = 17 };
enum class ElementWiseOperation : int32_t { kSUM = 0 };
enum class APILanguage : int32_t { kCPP = 0 };
enum class CudaGraphStrategy : int32_t { kDISABLED = 0, kWHOLE_GRAPH_CAPTURE = 1 };  // RTX only

struct Weights {
  DataType type;
  const void* values;
  int64_t count;
};

struct InterfaceInfo {
  const char* kind;
  int32_t major;
  int32_t minor;
};

}  // namespace trt_et::nvinfer
