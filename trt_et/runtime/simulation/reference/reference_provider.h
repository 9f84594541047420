// The provider of engines that are nested ExecuTorch programs.
#pragma once

#include "trt_et/engine_provider.h"

namespace trt_et {

const trt_et_engine_provider& reference_provider();

}  // namespace trt_et
