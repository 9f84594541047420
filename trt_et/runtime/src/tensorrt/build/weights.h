// The weights of a network: bytes of the request for the initializers of its model.
#pragma once

#include <string>
#include <vector>

#include "provider_status.h"

namespace trt_et::tensorrt {

// The bytes of one initializer.
struct WeightBytes {
  std::string initializer;
  const char* key;
  const void* bytes;
  size_t size;
};

// Every initializer with external data, with the weight that its location names.
Status find_weights(const trt_et_engine_request& request, std::vector<WeightBytes>* found);

// Weights as files beside a model that is not there, for a parser that only reads files. They go
// with this object.
class WeightFiles {
 public:
  WeightFiles() = default;
  WeightFiles(const WeightFiles&) = delete;
  WeightFiles& operator=(const WeightFiles&) = delete;
  ~WeightFiles();

  Status write(const std::string& folder, const std::vector<WeightBytes>& weights);
  std::string model_path() const { return folder_ + "/model.onnx"; }

 private:
  std::string folder_;  // of ours
};

}  // namespace trt_et::tensorrt
