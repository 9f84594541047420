// TensorRT's headers, and everything in which its majors differ: 8.6, 10, 11, and RTX. The only
// place that asks for a version.
#pragma once

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif
#include <NvInferRuntime.h>

#include <cstdint>
#include <type_traits>

namespace trt_et::tensorrt {

// TRT_ET_TENSORRT_RTX is set by the build for the headers of TensorRT-RTX, whose majors start at 1
// with the interface of TensorRT 10; that of 1.5 has come to be TensorRT 11's.
#if defined(TRT_ET_TENSORRT_RTX)
#define TRT_ET_MODERN 1
#define TRT_ET_SIZES_V2 1
inline constexpr bool kRtx = true;
#else
#define TRT_ET_MODERN (NV_TENSORRT_MAJOR >= 10)
#define TRT_ET_SIZES_V2 \
  (NV_TENSORRT_MAJOR > 10 || (NV_TENSORRT_MAJOR == 10 && NV_TENSORRT_MINOR >= 1))
inline constexpr bool kRtx = false;
#endif

inline constexpr int kMajor = NV_TENSORRT_MAJOR;
inline constexpr int kMinor = NV_TENSORRT_MINOR;

inline constexpr int32_t kHeaderVersion = NV_TENSORRT_VERSION;

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

inline nvinfer1::IExecutionContext* create_context(nvinfer1::ICudaEngine& engine,
                                                   bool user_memory) {
#if TRT_ET_MODERN
  using Strategy = nvinfer1::ExecutionContextAllocationStrategy;
  return engine.createExecutionContext(user_memory ? Strategy::kUSER_MANAGED : Strategy::kSTATIC);
#else
  return user_memory ? engine.createExecutionContextWithoutDeviceMemory()
                     : engine.createExecutionContext();
#endif
}

inline size_t memory_size(const nvinfer1::ICudaEngine& engine) {
#if TRT_ET_SIZES_V2
  return static_cast<size_t>(engine.getDeviceMemorySizeV2());
#else
  return engine.getDeviceMemorySize();
#endif
}

inline void set_memory(nvinfer1::IExecutionContext& context, void* memory, size_t bytes) {
#if TRT_ET_SIZES_V2
  context.setDeviceMemoryV2(memory, static_cast<int64_t>(bytes));
#else
  (void)bytes;
  context.setDeviceMemory(memory);
#endif
}

inline constexpr bool kStreamsWeights = TRT_ET_MODERN;

// A budget of -1: TensorRT's own choice. False when it refuses.
inline bool set_weight_budget(nvinfer1::ICudaEngine& engine, int64_t budget) {
#if TRT_ET_SIZES_V2
  return engine.setWeightStreamingBudgetV2(budget < 0 ? engine.getWeightStreamingAutomaticBudget()
                                                      : budget);
#elif TRT_ET_MODERN
  return engine.setWeightStreamingBudget(budget);
#else
  (void)engine;
  (void)budget;
  return false;
#endif
}

inline int64_t streamable_weights(const nvinfer1::ICudaEngine& engine) {
#if TRT_ET_MODERN
  return engine.getStreamableWeightsSize();
#else
  (void)engine;
  return 0;
#endif
}

// TensorRT from 10.15 on, and a TensorRT-RTX whose headers have it.
template <class Engine>
auto aliased_input_of(const Engine& engine, const char* output, int)
    -> decltype(engine.getAliasedInputTensor(output)) {
  return engine.getAliasedInputTensor(output);
}

template <class Engine>
const char* aliased_input_of(const Engine&, const char*, long) {
  return nullptr;
}

// Of TensorRT-RTX from 1.2 on. Without the question, the capture itself tells.
template <class Context>
auto is_stream_capturable_of(Context& context, cudaStream_t stream, int)
    -> decltype(context.isStreamCapturable(stream)) {
  return context.isStreamCapturable(stream);
}

template <class Context>
bool is_stream_capturable_of(Context&, cudaStream_t, long) {
  return true;
}

inline bool is_stream_capturable(nvinfer1::IExecutionContext& context, cudaStream_t stream) {
  return is_stream_capturable_of(context, stream, 0);
}

// Name of the input whose memory an output must share; null: none.
inline const char* aliased_input(const nvinfer1::ICudaEngine& engine, const char* output) {
  return aliased_input_of(engine, output, 0);
}

}  // namespace trt_et::tensorrt

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
