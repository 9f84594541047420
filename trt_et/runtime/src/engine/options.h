// What a user may ask of the run time, by one name in four ways. The first that says something
// counts: a load option (Module::load, runtime_spec), set_option() of the backend, the environment
// variable TRT_ET_<NAME>, a compile spec of the partition (but of folders and
// libraries: a file names none).
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
  // "use_shared_activation_scratch": true to let all engines on a GPU do so.
  bool shared_activation_scratch = false;
  // "use_shared_engines": false to load an engine that is loaded already a second time.
  bool shared_engines = true;
  // "execution_contexts": how many a method's engine may have, one for each shape that comes often.
  // Not said: two, and one where the GPU shares its memory with the host.
  std::optional<size_t> execution_contexts;
  // "optimization_profile": the index of the one to use. -1: the smallest that takes the shapes.
  int optimization_profile = -1;
  // "blocking_waits": true to let threads that wait for the GPU sleep.
  bool blocking_waits = false;
  // "warm_up_at_load": true to run the engine at load; see delegate/contexts.h.
  bool warm_up_at_load = false;
  // "pinned_staging": bytes of pinned memory, for each thread and GPU, that copies from and to the
  // host go through; for all methods of the process, and the largest number counts. 0: none.
  size_t pinned_staging = 0;
  // "profile_layers": true to trace every layer's time. Each run then waits for itself, and is
  // plain.
  bool profile_layers = false;
  // "runtime_cache": folder for what TensorRT-RTX compiles at run time, or "off". Empty: the user's
  // cache folder.
  std::string runtime_cache;
  // "plugin_libraries": absolute paths, separated by ":", of libraries with TensorRT plugins.
  std::string plugin_libraries;
  // "dla_core": the DLA core of engines that were built for DLA; TensorRT's choice without it.
  int dla_core = -1;
  // "engine_host_code": true to let TensorRT run code on the host that the engine holds, such as
  // the lean runtime in a version-compatible engine.
  bool engine_host_code = false;
  // "build_with": "tensorrt" or "tensorrt_rtx", to build engines of networks with that library
  // only.
  std::string build_with;
  // "build": false to load engines of networks that are built already, and no others.
  bool build = true;
  // "engine_folder": folder for engines that are built here, or "off". Empty: the user's cache
  // folder.
  std::string engine_folder;
  // "engine_folder_limit": bytes that built engines may take there.
  uint64_t engine_folder_limit = uint64_t{20} << 30;
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

  // What delegates that share scratch memory have in common; null: nothing.
  const void* shared_scratch() const;
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
