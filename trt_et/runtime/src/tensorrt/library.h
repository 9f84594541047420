// TensorRT's library, opened at run time, and one IRuntime for each device.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "result.h"
#include "version.h"

namespace trt_et::tensorrt {

// TensorRT's log goes to ExecuTorch's. Thread-safe, as TensorRT wants it.
class Logger final : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const char* text) noexcept override;

  // The first error on this thread since `forget()`; "" if none. TensorRT says what is wrong first,
  // and then in which of its own files it noticed.
  static std::string& reason();
  static void forget() { reason().clear(); }
};

// "11.1.0", or what came out of a version string of a blob.
struct Version {
  int major = 0;
  int minor = 0;
  int patch = 0;

  std::string text() const;
  // Of the leading numbers of a text; false where there are none.
  static bool parse(const char* text, Version* version);
  bool operator==(const Version& other) const {
    return major == other.major && minor == other.minor && patch == other.patch;
  }
};

struct Library {
  void* (*create_runtime)(void* logger, int32_t version) = nullptr;
  Version version;
  std::string path;
};

// Opens the library of this leaf's major, once: TRT_ET_TENSORRT_LIBRARY, the loader's path, pip's
// folders. NotFound says where it was looked for.
Result open_library(const Library** library);

struct Runtime {
  std::unique_ptr<nvinfer1::IRuntime> runtime;
  std::mutex mutex;  // deserialization on one runtime is one at a time
};

// The runtime of the current device, which is `device`; kept as long as something uses it.
Result runtime_of(int device, std::shared_ptr<Runtime>* runtime);

}  // namespace trt_et::tensorrt
