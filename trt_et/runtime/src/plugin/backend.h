// ExecuTorch's interface to this project.
#pragma once

#include <executorch/runtime/backend/interface.h>

namespace trt_et {

// The backend TRT_ET_BACKEND_NAME, which the plugin registers; it lives until the process ends.
executorch::runtime::BackendInterface& backend();

}  // namespace trt_et
