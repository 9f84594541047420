// Keeps the biases of matrix products, as trt_et/engines/lost_bias.py.
#pragma once

#include "library.h"

namespace trt_et::tensorrt {

// Checks the engine of a network. If it may lose a bias, the network is changed, and `build_again`
// set; it is an error if the network `is_changed` already.
Status keep_biases(const Library& library, const nvinfer::IHostMemory& plan, bool is_changed,
                   nvinfer::INetworkDefinition* network, bool* build_again);

}  // namespace trt_et::tensorrt
