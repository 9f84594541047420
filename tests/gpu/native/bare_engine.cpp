#include "bare_engine.h"

#include <dlfcn.h>
#include <tensorrt/version.h>

#include <cstdio>
#include <cstdlib>

#include "bound_program.h"
#include "cuda/device_buffer.h"

namespace trt_et::gpu_check {

namespace nvinfer1 = nvinfer;

namespace {

class Logger final : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const char* text) noexcept override {
    if (severity <= Severity::kERROR) std::fprintf(stderr, "TensorRT: %s\n", text);
  }
};

template <class T>
T* wanted(T* pointer, const char* what) {
  if (pointer != nullptr) return pointer;
  std::fprintf(stderr, "the bare API: %s failed\n", what);
  std::exit(1);
}

}  // namespace

struct BareEngine::Parts {
  Logger logger;
  std::unique_ptr<nvinfer1::IRuntime> runtime;
  std::unique_ptr<nvinfer1::ICudaEngine> engine;
  DeviceBuffer memory;  // of the context
  std::unique_ptr<nvinfer1::IExecutionContext> context;
};

BareEngine::BareEngine(const std::string& library, const std::string& bytes)
    : parts_(std::make_unique<Parts>()) {
  void* handle = wanted(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL), "opening TensorRT");
  using Create = void* (*)(void*, int32_t);
  const auto create = reinterpret_cast<Create>(
      wanted(dlsym(handle, "createInferRuntime_INTERNAL"), "finding createInferRuntime"));
  using Version = int32_t (*)();
  const auto version = reinterpret_cast<Version>(
      wanted(dlsym(handle, "getInferLibVersion"), "finding getInferLibVersion"));
  parts_->runtime.reset(static_cast<nvinfer1::IRuntime*>(
      wanted(create(&parts_->logger, version()), "createInferRuntime")));
  parts_->engine.reset(wanted(parts_->runtime->deserializeCudaEngine(bytes.data(), bytes.size()),
                              "deserializeCudaEngine"));
}

BareEngine::~BareEngine() = default;

void BareEngine::create_context() {
#if defined(TRT_ET_TENSORRT_RTX)
  constexpr bool kUserMemory = true;
#else
  constexpr bool kUserMemory = false;
#endif
  parts_->context.reset(
      wanted(tensorrt::create_context(*parts_->engine, kUserMemory), "createExecutionContext"));
  if (!kUserMemory) return;
  const int64_t bytes =
      tensorrt::memory_size(*parts_->engine, {tensorrt::kMajor, tensorrt::kLastMinor, 0});
  check(parts_->memory.reserve(cuda0(), 0, static_cast<size_t>(bytes)), "memory of a context");
  parts_->context->setDeviceMemoryV2(parts_->memory.data(),
                                     static_cast<int64_t>(parts_->memory.size()));
}

bool BareEngine::enqueue(const std::vector<IoTensor>& tensors, const std::vector<void*>& addresses,
                         void* stream) {
  nvinfer1::IExecutionContext& context = *parts_->context;
  bool good = true;
  for (size_t i = 0; i < tensors.size(); ++i) {
    good = context.setTensorAddress(tensors[i].name.c_str(), addresses[i]) && good;
  }
  return good && context.enqueueV3(static_cast<cudaStream_t>(stream));
}

}  // namespace trt_et::gpu_check
