// Compares trt_et/runtime/src/tensorrt/interface with NVIDIA's headers: slots, the first version
// that has each, signatures, layouts, enums, and the tables of the classes that we implement.
//
//   make check-interface TENSORRT_INCLUDE_DIR=/path/to/include
#include <NvInfer.h>
#if __has_include( \
    <NvOnnxParser.h>)  // Not in the public repository's folder before TensorRT 10.16.
#include <NvOnnxParser.h>
#define TRT_ET_HAS_PARSER 1
#else
#define TRT_ET_HAS_PARSER 0
#endif

#define TRT_ET_INTERFACE (NV_TENSORRT_MAJOR == 1 ? 11 : NV_TENSORRT_MAJOR)
#if NV_TENSORRT_MAJOR == 1
#define TRT_ET_TENSORRT_RTX
#endif
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "tensorrt/interface/build_objects.h"

namespace ours = trt_et::nvinfer;
namespace theirs = nvinfer1;

namespace {

int g_compared = 0;
int g_wrong = 0;

void compare(const char* what, long here, long there) {
  ++g_compared;
  if (here == there) return;
  ++g_wrong;
  std::printf("WRONG %s: %ld here, %ld in the headers\n", what, here, there);
}

// How the calling convention sees a type.
template <class T>
constexpr long shape() {
  if (std::is_pointer_v<T> || std::is_reference_v<T>) return -1;
  if constexpr (std::is_void_v<T>)
    return 0;
  else if constexpr (std::is_class_v<T>)
    return 1000 + static_cast<long>(sizeof(T));
  else
    return static_cast<long>(sizeof(T));
}

template <class... T>
struct Types {};

template <class R, class... A>
Types<R, A...> types_of(R (*)(void*, A...));
template <class T, class R, class... A>
Types<R, A...> types_of(R (T::*)(A...) noexcept);
template <class T, class R, class... A>
Types<R, A...> types_of(R (T::*)(A...) const noexcept);
// Methods of the parser in TensorRT 10.0.
template <class T, class R, class... A>
Types<R, A...> types_of(R (T::*)(A...));
template <class T, class R, class... A>
Types<R, A...> types_of(R (T::*)(A...) const);

template <class... A, class... B>
bool same_shapes(Types<A...>, Types<B...>) {
  if constexpr (sizeof...(A) == sizeof...(B)) return ((shape<A>() == shape<B>()) && ...);
  return false;
}

// The Itanium C++ ABI: a pointer to a virtual method is one more than its offset in the table.
template <class Method>
long slot_of(Method method) {
  ptrdiff_t offset = 0;
  std::memcpy(&offset, &method, sizeof offset);
  return (offset - 1) / static_cast<long>(sizeof(void*));
}

template <class Slot, class Method>
void compare_method(const char* what, Method method) {
  compare(what, Slot::kNumber, slot_of(method));
  using Here = decltype(types_of(static_cast<typename Slot::Function>(nullptr)));
  const bool same = same_shapes(Here{}, decltype(types_of(method)){});
  if (!same) std::printf("%s has another signature: ", what);
  compare(what, 1, same ? 1 : 0);
  if (NV_TENSORRT_MAJOR == 10 && Slot::kSinceMinor > NV_TENSORRT_MINOR) {
    compare("first minor version", Slot::kSinceMinor, NV_TENSORRT_MINOR);
  }
}

// A method that the headers lack must be known to be newer than they are.
template <class Slot>
void expect_newer(const char* what) {
  compare(what, 1, NV_TENSORRT_MAJOR == 10 && Slot::kSinceMinor > NV_TENSORRT_MINOR ? 1 : 0);
}

// TensorRT 10 has an overload.
using Deserialize = theirs::ICudaEngine* (theirs::apiv::VRuntime::*)(const void*, size_t) noexcept;

#define METHOD_OF(table, method) &T::method
#define TRT_ET_SLOT(table, method, ...)                                                            \
  template <class T>                                                                               \
  auto check_##table##_##method(T*, int) -> decltype(METHOD_OF(table, method), void()) {           \
    compare_method<ours::slots::table##_##method>("V" #table "::" #method,                         \
                                                  METHOD_OF(table, method));                       \
  }                                                                                                \
  template <class T>                                                                               \
  void check_##table##_##method(T*, long) {                                                        \
    expect_newer<ours::slots::table##_##method>("V" #table "::" #method " is not in the headers"); \
  }
#if defined(TRT_ET_TENSORRT_RTX)
#define TRT_ET_RTX_SLOT TRT_ET_SLOT
#else
#define TRT_ET_RTX_SLOT(...)
#endif
#define TRT_ET_CALLBACK(...)
#include "tensorrt/interface/slots.def"
#undef TRT_ET_SLOT

void check_slots() {
  using namespace theirs::apiv;
  using VPluginRegistry = theirs::IPluginRegistry;
#if TRT_ET_HAS_PARSER
  using VOnnxParser = nvonnxparser::IParser;
  using VParserError = nvonnxparser::IParserError;
#else
  using VOnnxParser = void;
  using VParserError = void;
#endif
#define TRT_ET_SLOT(table, method, ...)                           \
  if (std::strcmp(#method, "deserializeCudaEngine") != 0 &&       \
      (TRT_ET_HAS_PARSER || !std::is_void_v<V##table>)) {         \
    check_##table##_##method(static_cast<V##table*>(nullptr), 0); \
  }
#include "tensorrt/interface/slots.def"
  const Deserialize deserialize = &VRuntime::deserializeCudaEngine;
  compare_method<ours::slots::Runtime_deserializeCudaEngine>("VRuntime::deserializeCudaEngine",
                                                             deserialize);
}

#define SAME_VALUE(name) \
  compare(#name, static_cast<long>(ours::name), static_cast<long>(theirs::name))

void check_enums() {
  SAME_VALUE(DataType::kFLOAT);
  SAME_VALUE(DataType::kHALF);
  SAME_VALUE(DataType::kINT8);
  SAME_VALUE(DataType::kINT32);
  SAME_VALUE(DataType::kBOOL);
  SAME_VALUE(DataType::kUINT8);
  SAME_VALUE(DataType::kFP8);
  SAME_VALUE(DataType::kBF16);
  SAME_VALUE(DataType::kINT64);
  SAME_VALUE(TensorIOMode::kNONE);
  SAME_VALUE(TensorIOMode::kINPUT);
  SAME_VALUE(TensorIOMode::kOUTPUT);
  SAME_VALUE(TensorLocation::kDEVICE);
  SAME_VALUE(TensorLocation::kHOST);
  SAME_VALUE(TensorFormat::kLINEAR);
  SAME_VALUE(OptProfileSelector::kMIN);
  SAME_VALUE(OptProfileSelector::kOPT);
  SAME_VALUE(OptProfileSelector::kMAX);
  SAME_VALUE(ExecutionContextAllocationStrategy::kSTATIC);
  SAME_VALUE(ExecutionContextAllocationStrategy::kON_PROFILE_CHANGE);
  SAME_VALUE(ExecutionContextAllocationStrategy::kUSER_MANAGED);
  SAME_VALUE(ILogger::Severity::kINTERNAL_ERROR);
  SAME_VALUE(ILogger::Severity::kERROR);
  SAME_VALUE(ILogger::Severity::kWARNING);
  SAME_VALUE(ILogger::Severity::kINFO);
  SAME_VALUE(ILogger::Severity::kVERBOSE);
  SAME_VALUE(APILanguage::kCPP);
  SAME_VALUE(MemoryPoolType::kWORKSPACE);
  SAME_VALUE(NetworkDefinitionCreationFlag::kSTRONGLY_TYPED);
#if NV_TENSORRT_MAJOR != 10 || NV_TENSORRT_MINOR > 0
  SAME_VALUE(BuilderFlag::kWEIGHT_STREAMING);
#endif
#if defined(TRT_ET_TENSORRT_RTX)
  SAME_VALUE(CudaGraphStrategy::kDISABLED);
  SAME_VALUE(CudaGraphStrategy::kWHOLE_GRAPH_CAPTURE);
#endif
}

#define SAME_SIZE(name) compare("sizeof " #name, sizeof(ours::name), sizeof(theirs::name))
#define SAME_OFFSET(name, field)                                       \
  compare("offset of " #name "::" #field, offsetof(ours::name, field), \
          offsetof(theirs::name, field))

void check_layouts() {
  SAME_SIZE(Dims);
  SAME_OFFSET(Dims, nbDims);
  SAME_OFFSET(Dims, d);
  SAME_SIZE(InterfaceInfo);
  SAME_OFFSET(InterfaceInfo, kind);
  SAME_OFFSET(InterfaceInfo, major);
  SAME_OFFSET(InterfaceInfo, minor);
  SAME_SIZE(DataType);
  SAME_SIZE(ILogger::Severity);
  // The destructor's table, and the pointer to the implementation.
  SAME_SIZE(IRuntime);
  SAME_SIZE(ICudaEngine);
  SAME_SIZE(IExecutionContext);
  SAME_SIZE(IHostMemory);
  SAME_SIZE(IBuilder);
  SAME_SIZE(IBuilderConfig);
  SAME_SIZE(INetworkDefinition);
  SAME_SIZE(IOptimizationProfile);
  SAME_SIZE(ITensor);
}

#define SAME_SLOT(method) \
  compare("slot of " #method, slot_of(&ours::method), slot_of(&theirs::method))

template <class Base>
struct Logger final : Base {
  void log(typename Base::Severity, const char*) noexcept override {}
};
template <class Base>
struct Profiler final : Base {
  void reportLayerTime(const char*, float) noexcept override {}
};
template <class Base, class Dims>
struct Allocator final : Base {
  void* reallocateOutputAsync(const char*, void*, uint64_t, uint64_t,
                              cudaStream_t) noexcept override {
    return nullptr;
  }
  void notifyShape(const char*, const Dims&) noexcept override {}
};

template <class Base>
struct Monitor final : Base {
  void phaseStart(const char*, const char*, int32_t) noexcept override {}
  bool stepComplete(const char*, int32_t) noexcept override { return true; }
  void phaseFinish(const char*) noexcept override {}
};

template <class Ours, class Theirs>
void same_info(const Ours& here, const Theirs& there) {
  const ours::InterfaceInfo a = here.getInterfaceInfo();
  const theirs::InterfaceInfo b = there.getInterfaceInfo();
  const bool same = std::strcmp(a.kind, b.kind) == 0 && a.major == b.major && a.minor == b.minor;
  compare(b.kind, 1, same ? 1 : 0);
}

void check_callbacks() {
  SAME_SLOT(ILogger::log);
  SAME_SLOT(IProfiler::reportLayerTime);
  SAME_SLOT(IOutputAllocator::getAPILanguage);
  SAME_SLOT(IOutputAllocator::getInterfaceInfo);
#if !defined(TRT_ET_TENSORRT_RTX)
  SAME_SLOT(IOutputAllocator::reallocateOutput);
#endif
  SAME_SLOT(IOutputAllocator::reallocateOutputAsync);
  SAME_SLOT(IOutputAllocator::notifyShape);
  SAME_SLOT(IProgressMonitor::getInterfaceInfo);
  SAME_SLOT(IProgressMonitor::phaseStart);
  SAME_SLOT(IProgressMonitor::stepComplete);
  SAME_SLOT(IProgressMonitor::phaseFinish);
  SAME_SIZE(ILogger);
  SAME_SIZE(IProfiler);
  SAME_SIZE(IOutputAllocator);
  same_info(Monitor<ours::IProgressMonitor>(), Monitor<theirs::IProgressMonitor>());
  same_info(Allocator<ours::IOutputAllocator, ours::Dims>(),
            Allocator<theirs::IOutputAllocator, theirs::Dims>());
#if NV_TENSORRT_MAJOR != 10
  SAME_SLOT(ILogger::getInterfaceInfo);
  SAME_SLOT(IProfiler::getInterfaceInfo);
  same_info(Logger<ours::ILogger>(), Logger<theirs::ILogger>());
  same_info(Profiler<ours::IProfiler>(), Profiler<theirs::IProfiler>());
#endif
}

}  // namespace

int main() {
  check_slots();
  check_enums();
  check_layouts();
  check_callbacks();
  std::printf("TensorRT%s %d.%d.%d: %d facts compared, %d wrong\n",
              NV_TENSORRT_MAJOR == 1 ? "-RTX" : "", NV_TENSORRT_MAJOR, NV_TENSORRT_MINOR,
              NV_TENSORRT_PATCH, g_compared, g_wrong);
  return g_wrong == 0 ? 0 : 1;
}
