// The engine of a network: from the folder of built ones, or built now.
#pragma once

#include "common/provider_status.h"

namespace trt_et::tensorrt {

using TakeEngine = int (*)(void* user, const void* bytes, size_t size);

// Hands the engine to `take`, once; its failure is the result.
Status build_engine(const trt_et_engine_request& request, TakeEngine take, void* user);

// Whether this machine can build: it has TensorRT's builder and parser.
Status check_builder();

}  // namespace trt_et::tensorrt
