// What a delegate's bytes ask for: the engine or network in them, its GPU, and its provider.
#pragma once

#include <executorch/runtime/core/freeable_buffer.h>
#include <executorch/runtime/core/result.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cuda/cuda_api.h"
#include "engine/engine.h"

namespace trt_et {

// Used by one thread. Must outlive neither the bytes nor the options.
class EngineSource {
 public:
  // Finds named data of the program by its key.
  using FindData =
      std::function<executorch::runtime::Result<executorch::runtime::FreeableBuffer>(const char*)>;

  // Parses the bytes and finds a provider. `find_data` has the weights of networks; it may be
  // empty.
  Status open(const void* bytes, size_t size, FindData find_data, const LoadOptions& options);
  // With the GPU current: whether the engine fits it.
  Status fit();
  // Loads the engine; a network's is built before, outside of all locks.
  Status load(std::shared_ptr<Engine>* engine) const;
  // Builds the engine of a network.
  Status build(BuiltEngine* built) const;

  const Blob& blob() const { return blob_; }
  int device() const { return device_; }
  cuda::Api& api() const { return *api_; }
  const cuda::DeviceInfo& gpu() const { return gpu_; }
  // Of an engine beside the program, which must live as long as an engine that keeps its bytes.
  std::optional<executorch::runtime::FreeableBuffer>& external_engine() { return external_; }
  const trt_et_engine_provider& provider() const { return *provider_; }

 private:
  Status find_external_engine();
  Status read_weights();

  Blob blob_;
  int device_ = 0;
  cuda::Api* api_ = nullptr;
  cuda::DeviceInfo gpu_;
  std::vector<trt_et_binding> bindings_;
  OptDims opt_dims_;
  // Of networks: named data of the program, read and checked only if an engine is to be built.
  FindData find_data_;
  std::optional<executorch::runtime::FreeableBuffer> external_;
  std::vector<trt_et_weight> weights_;
  std::vector<executorch::runtime::FreeableBuffer> buffers_;
  std::string problem_;
  trt_et_engine_request request_{};
  const trt_et_engine_provider* provider_ = nullptr;
};

}  // namespace trt_et
