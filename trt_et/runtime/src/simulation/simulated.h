// What tests and tools ask of the simulated GPUs beyond the CUDA table.
#pragma once

#include "cuda/cuda_api.h"
#include "trt_et/runtime.h"
#include "trt_et/simulated.h"

namespace trt_et::cuda {

// False when no simulated GPUs are in use.
bool simulator_stats(trt_et_sim_stats* out);

// A counter that trt_et_sim_stats does not have: captures, graph_launches, double_calls (of a
// double of TensorRT), live_graphs, live_events. False when there is no such.
bool simulator_counter(const char* name, uint64_t* value);

// Whether the calling thread is in code of the simulator or of a double: not the delegate's.
bool inside_simulator();

// Only where GPUs are simulated.
const trt_et_sim_services& simulator_services();

// Returns what was left of the count before.
uint64_t simulator_fail_after(uint64_t n);

}  // namespace trt_et::cuda
