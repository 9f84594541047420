// What a user may ask of the run time, by one name in four ways. The first that says something
// counts: a load option (Module::load, runtime_spec), set_option() of the backend, the environment
// variable TRT_ET_<NAME>, a compile spec of the partition (but of runtime_cache: a file names no
// folder).
#pragma once

#include <executorch/runtime/backend/interface.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"

namespace trt_et {

struct LoadOptions {
  // "device": "1", "cuda:1" or an int; moves the engine to another GPU than its blob's.
  std::optional<int> device;
  // "cuda_graphs": false, "0" or "off" to run everything plainly.
  bool cuda_graphs = true;
  // "weight_streaming_budget": bytes of GPU memory for weights, or "auto" (-1). TensorRT >= 10.
  std::optional<int64_t> weight_streaming_budget;
  // "shared_device_memory": true to let the engines of a method take turns in one scratch memory.
  bool shared_device_memory = false;
  // "pinned_staging": bytes of pinned memory, for each thread and GPU, that copies from and to the
  // host go through; for all methods of the process, and the largest number counts. 0: none.
  size_t pinned_staging = 0;
  // "profile_layers": true to trace every layer's time. Each run then waits for itself, and is
  // plain.
  bool profile_layers = false;
  // "runtime_cache": folder for what TensorRT-RTX compiles at run time, or "off". Empty: the user's
  // cache folder.
  std::string runtime_cache;
  // Not options. What the delegates of a method have in common.
  const void* method = nullptr;
  // The program's compile spec plans the delegate's tensors on the host.
  bool host_planned = false;
  // The program's compile spec names inputs, by their index, that are state on the GPU which this
  // delegate is the first to read. They are set to zero before the first run.
  std::vector<size_t> state_inputs;
  // The program's compile spec names tensors, inputs then outputs, that are state on the GPU
  // although ExecuTorch plans them on the host.
  std::vector<size_t> device_state;
};

// Reads the options of one delegate.
Status read_options(const executorch::runtime::BackendInitContext& context,
                    executorch::runtime::ArrayRef<executorch::runtime::CompileSpec> compile_specs,
                    LoadOptions* options);

// The GPU that every program of this process is moved to: set_option(), else the environment.
// Leaves `device` alone where neither says one.
Status redirected_device(int* device);

// set_option() of the backend: from now on, for every delegate that is loaded. An empty text takes
// the setting back.
Status set_options(
    executorch::runtime::Span<const executorch::runtime::BackendOption> backend_options);

}  // namespace trt_et
