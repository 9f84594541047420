// The engine of a network: from the folder of built ones, or built now.
#pragma once

#include <memory>
#include <string>

#include "common/provider_status.h"

namespace trt_et::tensorrt {

struct BuiltEngine {
  std::shared_ptr<const void> owner;  // of the bytes
  const void* bytes = nullptr;
  size_t size = 0;
  std::string file;  // that it was found in; empty: it was built now
};

Status build_engine(const trt_et_engine_request& request, BuiltEngine* built);

// Whether this machine can build: it has TensorRT's builder and parser.
Status check_builder();

}  // namespace trt_et::tensorrt
