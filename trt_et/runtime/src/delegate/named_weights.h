// The weights of an ONNX network: named data of its program, read and checked only if an engine is
// to be built.
#pragma once

#include <executorch/runtime/core/freeable_buffer.h>
#include <executorch/runtime/core/named_data_map.h>

#include <string>
#include <vector>

#include "common/status.h"
#include "trt_et/engine_provider.h"

namespace trt_et {

// Used by one thread. Must outlive the request that it is added to, and `keys` must outlive it.
class NamedWeights {
 public:
  NamedWeights(const executorch::runtime::NamedDataMap* named_data,
               const std::vector<std::string>& keys);
  NamedWeights(const NamedWeights&) = delete;
  NamedWeights& operator=(const NamedWeights&) = delete;

  void add_to(trt_et_engine_request* request);

 private:
  Status read();

  const executorch::runtime::NamedDataMap* named_data_;
  std::vector<trt_et_weight> weights_;
  std::vector<executorch::runtime::FreeableBuffer> buffers_;
  std::string problem_;
};

}  // namespace trt_et
