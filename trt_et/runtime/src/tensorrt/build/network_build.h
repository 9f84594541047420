// One build: TensorRT's ONNX parser and its builder make a serialized engine of an ONNX model and
// its weights.
#pragma once

#include <memory>

#include "library.h"

namespace trt_et::tensorrt {

// A library beside TensorRT's own.
struct ParserLibrary {
  void* (*create)(void* network, void* logger, int32_t version) = nullptr;
  int32_t version = 0;
};

// Opens it, once: beside TensorRT's library, on the loader's path, in pip's folders. NotSupported
// where there is none, or where this TensorRT builds no engines.
Status open_parser(const Library& library, const ParserLibrary** parser);

// The request's weights have been read. `scratch`: a folder for weights that a parser only reads
// from files; "" where there is none. It is left as it was.
Status build_network(const trt_et_engine_request& request, const Library& library,
                     const ParserLibrary& parser, const std::string& scratch,
                     std::unique_ptr<nvinfer::IHostMemory>* plan);

}  // namespace trt_et::tensorrt
