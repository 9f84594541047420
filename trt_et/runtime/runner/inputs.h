// The inputs of a method: from files, random, or all ones.
#pragma once

#include <executorch/runtime/executor/method.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "flags.h"
#include "memory.h"

namespace trt_et::runner {

// Owns the bytes of the inputs, which the method may refer to.
class Inputs {
 public:
  // As the flags say. False after a message on stderr.
  bool prepare(executorch::runtime::Method& method, const Flags& flags);

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

  static bool describe(executorch::runtime::Method& method, size_t index, Input* input);
  // Makes an input of these sizes; the largest ones are those that it was described with.
  static bool resize(size_t index, const std::vector<int32_t>& sizes, Input* input);
  static bool fill_or_read(const Flags& flags, size_t index, size_t tensor,
                           std::mt19937_64& generator, Input* input);
  static bool read_array(const std::string& path, size_t index, bool has_sizes, Input* input);

  std::vector<Input> inputs_;
};

}  // namespace trt_et::runner
