// What a program does with CUDA beside the plugin, on a real driver; the fake driver of
// tests/runtime/native/test_cuda_rules.cpp keeps the same rules.
#pragma once

#include <string>

namespace trt_et::gpu_check {

// Each prints "name value" lines, the number of wrong results among them, and returns 0 if there
// are none, 2 otherwise. PROGRAM has float32 inputs and outputs on the GPU.
//
//   own_stream       copies and runs on a non-blocking stream of the caller's, with no waits
//   green            the same on a stream of a green context, also where that context is current;
//                    kernels in place of TensorRT stay on its multiprocessors
//   capture          the caller captures a run and launches its graph, beside plain runs
//   memory_kinds     inputs and outputs in pageable, pinned and managed host memory
//   own_context      a context of the caller's own is current; a stream of it is refused
//   fork             a child is refused and ends; the parent goes on
int check_caller(const std::string& part, const std::string& program, int rounds);

}  // namespace trt_et::gpu_check
