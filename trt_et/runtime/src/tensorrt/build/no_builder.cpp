// TensorRT 8.6 runs engines, and builds none of networks.
#include "build/engine_build.h"

namespace trt_et::tensorrt {

Status check_builder() {
  return fail(Error::NotSupported,
              "TensorRT 8.6 builds no engines of networks: install 10 or later");
}

Status build_engine(const trt_et_engine_request&, BuiltEngine*) { return check_builder(); }

}  // namespace trt_et::tensorrt
