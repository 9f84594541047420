// Keeps the biases of matrix products, as trt_et/engines/lost_bias.py; of TensorRT-RTX alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "library.h"

namespace trt_et::tensorrt {

// The results of an engine's products that may lose their bias, as `lost_biases` of
// trt_et/inspection/kernels.py. False: the engine's text is not known.
bool find_lost_biases(std::string_view engine, std::vector<std::string>* results);

// Checks the engine of a network. If it may lose a bias, the network is changed, and `build_again`
// set. An error where `is_changed` says that it has been changed before.
Status keep_biases(const Library& library, const nvinfer::IHostMemory& plan, bool is_changed,
                   nvinfer::INetworkDefinition* network, bool* build_again);

}  // namespace trt_et::tensorrt
