// The inputs of a method: from files, or all ones.
#pragma once

#include <executorch/runtime/executor/method.h>

#include <cstdint>
#include <string>
#include <vector>

#include "memory.h"

namespace trt_et::runner {

// Owns the bytes of the inputs, which the method may refer to.
class Inputs {
 public:
  // Reads one file per tensor input; no files: all ones. False after a message on stderr.
  bool prepare(executorch::runtime::Method& method, const std::vector<std::string>& files);

  // Gives them to the method; before each run, for a run may overwrite them.
  bool set(executorch::runtime::Method& method, const MethodMemory& memory);

 private:
  struct Input {
    bool is_tensor = false;
    executorch::runtime::etensor::ScalarType dtype{};
    std::vector<int32_t> sizes;
    std::vector<uint8_t> dim_order;
    std::vector<int32_t> strides;
    std::vector<uint8_t> bytes;
  };

  bool describe(executorch::runtime::Method& method, size_t index, Input* input);

  std::vector<Input> inputs_;
};

}  // namespace trt_et::runner
