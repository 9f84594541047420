// What tests and tools ask of the simulated GPUs beyond the CUDA table.
#pragma once

#include "../../include/trt_et/runtime.h"
#include "cuda_api.h"

namespace trt_et::cuda {

// False when no simulated GPUs are in use.
bool simulator_stats(trt_et_sim_stats* out);

// Returns what was left of the count before.
uint64_t simulator_fail_after(uint64_t n);

}  // namespace trt_et::cuda
