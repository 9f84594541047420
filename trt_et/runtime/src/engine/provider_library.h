// The provider libraries, one per TensorRT major: which of them an engine needs, and opening them.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "trt_et/engine_provider.h"

namespace trt_et {

// "10.3.0.26", which TensorRT and TensorRT-RTX write into an engine's first bytes; empty if these
// are no engine's. TensorRT-RTX's major is 1.
std::string plan_version(const void* engine, size_t size);

// File names to try, the likeliest first; several where the blob does not say what built it.
std::vector<std::string> provider_libraries(const std::string& builder, const std::string& version);

// The same for a network, of which any TensorRT that has a parser builds an engine; `build_with`:
// "tensorrt", "tensorrt_rtx", or empty.
std::vector<std::string> building_libraries(const std::string& build_with);

// Opens a library by its name in TRT_ET_PROVIDER_PATH or next to the plugin, once. NotFound where
// there is none. Only after the driver has been asked.
Status open_provider_library(const std::string& name, const trt_et_engine_provider** provider);

// See trt_et_save_kernels: of the libraries that are open.
void save_kernels();

}  // namespace trt_et
