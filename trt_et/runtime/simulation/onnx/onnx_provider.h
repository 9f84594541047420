// The provider of ONNX payloads on simulated GPUs: onnxruntime runs them on the host.
#pragma once

#include "trt_et/engine_provider.h"

namespace trt_et {

const trt_et_engine_provider& onnx_provider();

}  // namespace trt_et
