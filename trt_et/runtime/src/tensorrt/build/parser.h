// TensorRT's ONNX parser, a library beside TensorRT's own.
#pragma once

#include "library.h"

namespace trt_et::tensorrt {

struct ParserLibrary {
  void* (*create)(void* network, void* logger, int32_t version) = nullptr;
  int32_t version = 0;
};

// Opens it, once: beside TensorRT's library, on the loader's path, in pip's folders. NotSupported
// where there is none, or where this TensorRT builds no engines.
Status open_parser(const Library& library, const ParserLibrary** parser);

}  // namespace trt_et::tensorrt
