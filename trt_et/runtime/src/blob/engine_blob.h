// The blob of an engine that was built from a network's blob.
#pragma once

#include <cstddef>
#include <string>

#include "blob.h"

namespace trt_et {

// What only the machine that built the engine knows.
struct BuiltFacts {
  bool rtx = false;
  std::string library_version;
  std::string gpu_name;
  std::string compute_capability;
  std::string target_platform;
};

// Everything in front of the engine's bytes: what the network's blob says of its inputs and
// outputs, with these facts in place of the network. `network` are the bytes that parse_blob() has
// taken.
Status encode_front(const void* network, const BuiltFacts& facts, const void* engine, size_t size,
                    std::string* front);

}  // namespace trt_et
