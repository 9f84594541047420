// TensorRT's library, opened at run time, and one IRuntime for each device.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/provider_status.h"
#include "version.h"

namespace trt_et::tensorrt {

// TensorRT's log goes to ExecuTorch's. Thread-safe, as TensorRT wants it.
class Logger final : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const char* text) noexcept override;

  // Why TensorRT failed on this thread since `forget()`; "" if it did not. TensorRT says what is
  // wrong first, and then in which of its own files it noticed; lack of memory comes later.
  static ThreadText& reason();
  // For messages: never empty.
  static const char* reason_text() {
    return reason().empty() ? "it says no reason" : reason().c_str();
  }
  static void forget() { reason().clear(); }
  static bool lacks_memory();
  static bool lacks_plugin();
};

struct Library {
  void* (*create_runtime)(void* logger, int32_t version) = nullptr;
  void* (*create_builder)(void* logger, int32_t version) = nullptr;  // null in the lean library
  void* (*plugin_registry)() = nullptr;                              // likewise
  Version version;
  int32_t version_number = 0;  // as the library itself writes it
  std::string build;           // "114"; empty where it does not say
  std::string path;

  std::string name() const { return std::string(kName) + " " + version.text(); }  // for messages
};

// Opens the library of this provider's major, once: TRT_ET_TENSORRT_LIBRARY, the loader's path,
// pip's folders. NotFound says where it was looked for.
Status open_library(const Library** library);

// Where a library that belongs to it may be, each with a "/" behind it; "" for the loader's path.
std::vector<std::string> library_folders(const Library& library);

// Loads the plugin libraries that the request names, each once.
Status load_plugin_libraries(const trt_et_engine_request& request, const Library& library);

// For every object that takes a logger.
Logger& logger();

struct Runtime {
  std::unique_ptr<nvinfer1::IRuntime> runtime;
  std::mutex mutex;  // deserialization on one runtime is one at a time
};

// The runtime of the current device, with the settings that the request asks for; kept as long as
// something uses it. Loads the request's plugin libraries.
Status runtime_of(const trt_et_engine_request& request, std::shared_ptr<Runtime>* runtime);

}  // namespace trt_et::tensorrt
