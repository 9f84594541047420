// What a user may ask of the run time, by one name in four ways. The first that says something
// counts: a load option (Module::load, runtime_spec), set_option() of the backend, the environment
// variable TRT_ET_<NAME> (as it was when the plugin was loaded), a compile spec of the partition
// (but of folders and libraries: a file names none).
#pragma once

#include <executorch/runtime/backend/interface.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"

namespace trt_et {

// The options are named as the fields, or with "use_" in front; docs/native.md has what each does.
struct LoadOptions {
  std::optional<int> device;
  bool cuda_graphs = true;
  std::optional<int64_t> weight_streaming_budget;  // as in trt_et_engine_request
  bool shared_device_memory = false;
  // Not said: two, and one where the GPU shares its memory with the host.
  std::optional<size_t> execution_contexts;
  int optimization_profile = -1;  // the smallest that takes the shapes
  bool blocking_waits = false;
  bool warm_up_at_load = false;
  bool profile_layers = false;
  std::string runtime_cache;  // empty: in the user's cache folder; or "off"
  std::string plugin_libraries;
  int dla_core = -1;  // TensorRT's choice
  bool engine_host_code = false;
  bool build = true;
  std::string engine_folder;  // as runtime_cache

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

// From now on, for every delegate that is loaded. An empty text takes the setting back.
Status set_option(const char* name, const std::string& text);
// set_option() of the backend: the same.
Status set_options(
    executorch::runtime::Span<const executorch::runtime::BackendOption> backend_options);

}  // namespace trt_et
