// TensorRT's library, opened at run time, and one IRuntime for each device.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "provider_status.h"
#include "version.h"

namespace trt_et::tensorrt {

// TensorRT's log goes to ExecuTorch's. Thread-safe, as TensorRT wants it.
class Logger final : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const char* text) noexcept override;

  // The first error on this thread since `forget()`; "" if none. TensorRT says what is wrong first,
  // and then in which of its own files it noticed.
  static ThreadText& reason();
  static void forget() { reason().clear(); }
};

struct Library {
  void* (*create_runtime)(void* logger, int32_t version) = nullptr;
  Version version;
  int32_t version_number = 0;  // as the library itself writes it
  std::string path;
};

// Opens the library of this provider's major, once: TRT_ET_TENSORRT_LIBRARY, the loader's path,
// pip's folders. NotFound says where it was looked for.
ProviderStatus open_library(const Library** library);

struct Runtime {
  std::unique_ptr<nvinfer1::IRuntime> runtime;
  std::mutex mutex;  // deserialization on one runtime is one at a time
};

// The runtime of the current device, which is `device`; kept as long as something uses it.
ProviderStatus runtime_of(int device, std::shared_ptr<Runtime>* runtime);

}  // namespace trt_et::tensorrt
