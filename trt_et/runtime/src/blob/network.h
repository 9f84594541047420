// The metadata of an ONNX network: the member "network" of a blob whose builder is "onnx".
#pragma once

#include "strict_json.h"

namespace trt_et {

// Checks the object and keeps it as text, with its list of weights. Members that are not known are
// kept for the provider.
Status read_network(const Json& network, Metadata* metadata);

}  // namespace trt_et
