// The TensorRT that a provider is compiled for, and everything in which its versions differ. The
// only file that asks for a version. The build sets TRT_ET_TENSORRT_MAJOR to 10 or 11, or
// TRT_ET_TENSORRT_RTX; the interface is our own description of it (interface/).
#pragma once

#if defined(TRT_ET_TENSORRT_RTX)
#define TRT_ET_INTERFACE 11
#else
#define TRT_ET_INTERFACE TRT_ET_TENSORRT_MAJOR
#endif

#include <cstdint>
#include <cstdio>
#include <string>

#include "interface/build_objects.h"

namespace trt_et::tensorrt {

namespace nvinfer1 = nvinfer;
namespace slots = nvinfer::slots;

#if defined(TRT_ET_TENSORRT_RTX)
inline constexpr bool kRtx = true;
inline constexpr const char* kName = "TensorRT-RTX";
inline constexpr int kMajor = 1;
#else
inline constexpr bool kRtx = false;
inline constexpr const char* kName = "TensorRT";
inline constexpr int kMajor = TRT_ET_INTERFACE;
#endif

// The other major whose version-compatible engines this TensorRT runs; 0: none.
inline constexpr int kOlderMajor = kRtx ? 0 : kMajor == 11 ? 10 : kMajor == 10 ? 8 : 0;

// "11.1.0", or what came out of a version string of a blob.
struct Version {
  int major = 0;
  int minor = 0;
  int patch = 0;

  std::string text() const {
    return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
  }
  // Of the leading numbers of a text; false where there are none.
  static bool parse(const char* text, Version* version) {
    return std::sscanf(text, "%d.%d.%d", &version->major, &version->minor, &version->patch) == 3;
  }
  bool operator==(const Version& other) const {
    return major == other.major && minor == other.minor && patch == other.patch;
  }
};

// The versions whose interface was compared with slots.def (docs/native.md). Newer ones of the same
// major are taken: TensorRT appends to its interface. TensorRT-RTX changed it in 1.5.
inline constexpr int kFirstMinor = kRtx ? 5 : 0;
inline constexpr int kLastMinor = kRtx ? 7 : kMajor == 10 ? 16 : 4;

// Whether a library of this version has the method. What it has not must not be called.
template <class Slot>
bool has(const Version& version) {
  return version.major != kMajor || version.minor >= Slot::kSinceMinor;
}

struct DtypeName {
  nvinfer1::DataType type;
  int32_t scalar_type;  // ExecuTorch's ScalarType
};

inline constexpr DtypeName kDtypes[] = {
    {nvinfer1::DataType::kFLOAT, 6}, {nvinfer1::DataType::kHALF, 5},
    {nvinfer1::DataType::kINT8, 1},  {nvinfer1::DataType::kINT32, 3},
    {nvinfer1::DataType::kBOOL, 11}, {nvinfer1::DataType::kUINT8, 0},
    {nvinfer1::DataType::kBF16, 15}, {nvinfer1::DataType::kINT64, 4},
};

inline nvinfer1::IExecutionContext* create_context(nvinfer1::ICudaEngine& engine,
                                                   bool user_memory) {
  using Strategy = nvinfer1::ExecutionContextAllocationStrategy;
  return engine.createExecutionContext(user_memory ? Strategy::kUSER_MANAGED : Strategy::kSTATIC);
}

// Bytes that a context of user memory needs; -1 where this TensorRT does not say.
inline int64_t memory_size(const nvinfer1::ICudaEngine& engine, const Version& version) {
  return has<slots::CudaEngine_getDeviceMemorySizeV2>(version) ? engine.getDeviceMemorySizeV2()
                                                               : -1;
}

inline bool streams_weights(const Version& version) {
  return has<slots::CudaEngine_setWeightStreamingBudgetV2>(version);
}

// The input whose memory an output must share; null: none.
inline const char* aliased_input(const nvinfer1::ICudaEngine& engine, const char* output,
                                 const Version& version) {
  return has<slots::CudaEngine_getAliasedInputTensor>(version)
             ? engine.getAliasedInputTensor(output)
             : nullptr;
}

// Without TensorRT-RTX's question, the capture itself tells.
inline bool is_stream_capturable(nvinfer1::IExecutionContext& context, cudaStream_t stream) {
#if defined(TRT_ET_TENSORRT_RTX)
  return context.isStreamCapturable(stream);
#else
  (void)context;
  (void)stream;
  return true;
#endif
}

}  // namespace trt_et::tensorrt
