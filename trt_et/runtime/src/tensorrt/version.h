// The TensorRT that a provider is compiled for, and everything in which its versions differ. The
// only file that asks for a version.
//
// Normally the interface is our own description of it (interface/), and the build sets
// TRT_ET_TENSORRT_MAJOR to 10 or 11, or TRT_ET_TENSORRT_RTX. With TRT_ET_TENSORRT_HEADERS it is
// NVIDIA's headers, which TensorRT 8.6 needs.
#pragma once

#if defined(TRT_ET_TENSORRT_RTX)
#define TRT_ET_INTERFACE 11
#elif defined(TRT_ET_TENSORRT_MAJOR)
#define TRT_ET_INTERFACE TRT_ET_TENSORRT_MAJOR
#endif

#if defined(TRT_ET_TENSORRT_HEADERS)
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif
#include <NvInferRuntime.h>
#if !defined(TRT_ET_INTERFACE)
#define TRT_ET_INTERFACE NV_TENSORRT_MAJOR
#endif
#endif

#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>

#define TRT_ET_MODERN (TRT_ET_INTERFACE >= 10)
#if TRT_ET_MODERN
#include "interface/build_objects.h"
#endif

namespace trt_et::tensorrt {

#if !defined(TRT_ET_TENSORRT_HEADERS)
namespace nvinfer1 = nvinfer;
#endif

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
inline constexpr int kFirstMinor = kRtx ? 5 : kMajor == 8 ? 6 : 0;
inline constexpr int kLastMinor = kRtx ? 7 : kMajor == 8 ? 6 : kMajor == 10 ? 16 : 4;

#if TRT_ET_MODERN
// Whether a library of this version has the method. What it has not must not be called.
template <class Slot>
bool has(const Version& version) {
  return version.major != kMajor || version.minor >= Slot::kSinceMinor;
}
namespace slots = nvinfer::slots;
#endif

using Extent = std::remove_extent_t<decltype(nvinfer1::Dims::d)>;  // of 32 bits before 10

struct DtypeName {
  nvinfer1::DataType type;
  int32_t scalar_type;  // ExecuTorch's ScalarType
};

inline constexpr DtypeName kDtypes[] = {
    {nvinfer1::DataType::kFLOAT, 6}, {nvinfer1::DataType::kHALF, 5},
    {nvinfer1::DataType::kINT8, 1},  {nvinfer1::DataType::kINT32, 3},
    {nvinfer1::DataType::kBOOL, 11}, {nvinfer1::DataType::kUINT8, 0},
#if TRT_ET_MODERN
    {nvinfer1::DataType::kBF16, 15}, {nvinfer1::DataType::kINT64, 4},
#endif
};

// memory_size: bytes that a context of user memory needs; -1 where this TensorRT does not say.
// automatic_budget, set_weight_budget (false: refused), streamable_weights: only where it streams
// weights. aliased_input: the input whose memory an output must share; null: none.
#if TRT_ET_MODERN
inline nvinfer1::IExecutionContext* create_context(nvinfer1::ICudaEngine& engine,
                                                   bool user_memory) {
  using Strategy = nvinfer1::ExecutionContextAllocationStrategy;
  return engine.createExecutionContext(user_memory ? Strategy::kUSER_MANAGED : Strategy::kSTATIC);
}

inline int64_t memory_size(const nvinfer1::ICudaEngine& engine, const Version& version) {
  return has<slots::CudaEngine_getDeviceMemorySizeV2>(version) ? engine.getDeviceMemorySizeV2()
                                                               : -1;
}

inline void set_memory(nvinfer1::IExecutionContext& context, void* memory, size_t bytes) {
  context.setDeviceMemoryV2(memory, static_cast<int64_t>(bytes));
}

inline bool streams_weights(const Version& version) {
  return has<slots::CudaEngine_setWeightStreamingBudgetV2>(version);
}

inline int64_t automatic_budget(const nvinfer1::ICudaEngine& engine) {
  return engine.getWeightStreamingAutomaticBudget();
}

inline bool set_weight_budget(nvinfer1::ICudaEngine& engine, int64_t budget) {
  return engine.setWeightStreamingBudgetV2(budget);
}

inline int64_t streamable_weights(const nvinfer1::ICudaEngine& engine) {
  return engine.getStreamableWeightsSize();
}

// Of headers that are older than the method.
template <class Engine>
auto aliased_input_of(const Engine& engine, const char* output, int)
    -> decltype(engine.getAliasedInputTensor(output)) {
  return engine.getAliasedInputTensor(output);
}

template <class Engine>
const char* aliased_input_of(const Engine&, const char*, long) {
  return nullptr;
}

inline const char* aliased_input(const nvinfer1::ICudaEngine& engine, const char* output,
                                 const Version& version) {
  return has<slots::CudaEngine_getAliasedInputTensor>(version) ? aliased_input_of(engine, output, 0)
                                                               : nullptr;
}
#else
inline nvinfer1::IExecutionContext* create_context(nvinfer1::ICudaEngine& engine,
                                                   bool user_memory) {
  return user_memory ? engine.createExecutionContextWithoutDeviceMemory()
                     : engine.createExecutionContext();
}

inline int64_t memory_size(const nvinfer1::ICudaEngine& engine, const Version&) {
  return static_cast<int64_t>(engine.getDeviceMemorySize());
}

inline void set_memory(nvinfer1::IExecutionContext& context, void* memory, size_t) {
  context.setDeviceMemory(memory);
}

inline bool streams_weights(const Version&) { return false; }
inline int64_t automatic_budget(const nvinfer1::ICudaEngine&) { return 0; }
inline bool set_weight_budget(nvinfer1::ICudaEngine&, int64_t) { return false; }
inline int64_t streamable_weights(const nvinfer1::ICudaEngine&) { return 0; }
inline const char* aliased_input(const nvinfer1::ICudaEngine&, const char*, const Version&) {
  return nullptr;
}
#endif

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

#if defined(TRT_ET_TENSORRT_HEADERS) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
