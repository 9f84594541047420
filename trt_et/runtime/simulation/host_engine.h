// Engines that a library on the host runs, on the memory of simulated GPUs and in stream order:
// what the providers of reference engines and of ONNX payloads have in common.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/engine_provider.h"
#include "common/provider_status.h"

namespace trt_et {

// Dense memory on the (simulated) GPU, with the shape of that memory.
struct HostMemory {
  void* address = nullptr;
  size_t capacity = 0;
  std::vector<int64_t> dims;
};

// Runs an engine, one run at a time: reads the inputs and writes the outputs, whose `dims` become
// the shapes that were written. `memory` is as the engine's bindings.
using HostRun = std::function<Status(std::vector<HostMemory>* memory)>;

class HostEngine {
 public:
  // `kind`: as messages call it.
  HostEngine(const char* kind, int device) : kind_(kind), device_(device) {}
  virtual ~HostEngine() = default;
  // What a context runs; it must not outlive the engine.
  virtual Status create_run(HostRun* run) = 0;
  virtual bool keeps_bytes() const { return false; }

  const char* kind() const { return kind_; }
  int device() const { return device_; }
  // Filled by load(). A shape that the library does not know is [-1, ...].
  std::vector<trt_et_binding> bindings;

 private:
  const char* const kind_;
  const int device_;
};

// The provider of reference engines, which are nested ExecuTorch programs, and that of ONNX
// payloads, which onnxruntime runs.
const trt_et_engine_provider& reference_provider();
const trt_et_engine_provider& onnx_provider();

// A provider's table, without its name, probe and load.
trt_et_engine_provider host_provider();

// The table for engines of a class that has probe() and load(), and a kind for messages.
template <typename Engine>
trt_et_engine_provider host_provider_of(const char* name) {
  trt_et_engine_provider made = host_provider();
  made.name = name;
  made.probe = [](const trt_et_engine_request* request) {
    return guarded([&] { return Engine::probe(*request); });
  };
  made.load = [](const trt_et_engine_request* request, void** engine) {
    return guarded([&]() -> Status {
      auto loaded = std::make_unique<Engine>(Engine::kKind, request->device);
      TRT_ET_TRY(loaded->load(*request));
      *engine = static_cast<HostEngine*>(loaded.release());
      return {};
    });
  };
  return made;
}

}  // namespace trt_et
