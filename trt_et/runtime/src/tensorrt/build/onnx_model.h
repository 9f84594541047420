// The little that is read of an ONNX model before TensorRT's parser gets it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trt_et::tensorrt {

// An initializer of the model's graph whose bytes are external data.
struct ExternalInitializer {
  std::string name;
  std::string location;
};

// Lists them in the model's order. False where the bytes are no serialized ModelProto.
bool find_external_initializers(const void* model, size_t size,
                                std::vector<ExternalInitializer>* found);

}  // namespace trt_et::tensorrt
