// Whether runs of a delegate are ordered with what the rest of the process does on a GPU.
#pragma once

#include <string>

namespace trt_et::gpu_check {

// PROGRAM has float32 inputs and outputs on the GPU. Copies as ExecuTorch's own CUDA allocator
// does, on the legacy stream, without a wait of their own, before and behind each run; then two
// threads that load, run and unload at once. Prints how many results were wrong; 0 if none.
int check_order(const std::string& program, int rounds);

}  // namespace trt_et::gpu_check
