// Opening libtrt_et_simulation.so: GPUs on host memory, and the engines that they run.
#pragma once

#include "common/engine_provider.h"
#include "cuda_api.h"

namespace trt_et::cuda {

// What that library gives. It is built together with the plugin, and shares its C++ types.
struct Simulation {
  const char* version;  // must be the plugin's
  Api* api;
  const trt_et_engine_provider* reference_provider;
  const trt_et_engine_provider* onnx_provider;
  // See trt_et_counter(). False when there is no such.
  bool (*counter)(const char* name, uint64_t* value);
  // Whether TRT_ET_TENSORRT_LIBRARY names a fake TensorRT, which then gets what it needs.
  bool (*attach_fake)();
};

// The library's one symbol for the plugin. Calls after the first return what that one made, with
// so many GPUs from then on. `variable`: see trt_et_host.
#define TRT_ET_OPEN_SIMULATION "trt_et_open_simulation"
using OpenSimulation = const Simulation* (*)(int devices, const char* (*variable)(const char*));

// Null as long as no GPUs are simulated.
const Simulation* simulation();

}  // namespace trt_et::cuda
