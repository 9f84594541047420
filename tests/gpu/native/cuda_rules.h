// Assumptions about CUDA and TensorRT that only a GPU can confirm.
#pragma once

#include <string>
#include <vector>

#include "bare_engine.h"

namespace trt_et::gpu_check {

// Binds other addresses to one context and queues the next run without a wait in between. Prints
// the number of runs with wrong outputs; 0 if there are none, 2 otherwise.
int check_rebinding(const std::string& engine, const std::string& library, int rounds,
                    const std::vector<IoTensor>& tensors);

// Lets the legacy stream wait for an event of a non-blocking stream, then copies on a blocking
// stream. Prints the number of copies that came too early; 0 if there are none, 2 otherwise.
int check_barrier(const std::string& engine, const std::string& library, int rounds,
                  const std::vector<IoTensor>& tensors);

// Runs a program that only a static object frees, after main().
int leave_to_static_objects(const std::string& program);

// Loads and runs a program and prints "primary_context_N 0|1" for each GPU.
int list_primary_contexts(const std::string& program);

}  // namespace trt_et::gpu_check
