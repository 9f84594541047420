// An engine through TensorRT's own API, with nothing of ours between: what a delegate is held up
// to.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace trt_et::gpu_check {

// An input or output of static shape.
struct IoTensor {
  std::string name;
  size_t bytes = 0;
};

class BareEngine {
 public:
  // Deserializes on the current GPU. Ends the process with TensorRT's own words where that fails.
  BareEngine(const std::string& library, const std::string& bytes);
  ~BareEngine();

  void create_context();

  // One address for each of the tensors, in their order; then the run. False where TensorRT
  // refuses.
  bool enqueue(const std::vector<IoTensor>& tensors, const std::vector<void*>& addresses,
               void* stream);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace trt_et::gpu_check
