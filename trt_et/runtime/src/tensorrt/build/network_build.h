// One build: an ONNX model and its weights become a serialized engine.
#pragma once

#include <memory>

#include "parser.h"

namespace trt_et::tensorrt {

// `scratch`: a folder for weights that a parser only reads from files; "" where there is none. It
// is left as it was.
Status build_network(const trt_et_engine_request& request, const Library& library,
                     const ParserLibrary& parser, const std::string& scratch,
                     std::unique_ptr<nvinfer::IHostMemory>* plan);

}  // namespace trt_et::tensorrt
