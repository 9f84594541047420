// A program from memory, whose first method is loaded and run with inputs of ones. What is wrong
// with it is an error here, never the end of the process.
#pragma once

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>

#include <memory>
#include <optional>
#include <vector>

#include "memory.h"

namespace trt_et::hard_use {

using Bytes = std::vector<uint8_t>;

class LoadedProgram {
 public:
  LoadedProgram(const void* bytes, size_t size) : loader_(bytes, size) {}

  // False where the program, its method or its inputs are refused.
  bool load(executorch::runtime::Program::Verification verification);
  bool execute();
  // The bytes of all outputs that are tensors.
  Bytes outputs() const;

 private:
  bool set_inputs();
  bool set_input(size_t index);

  executorch::extension::BufferDataLoader loader_;
  std::optional<executorch::runtime::Program> program_;
  runner::SharedArenas arenas_;
  runner::MethodMemory memory_;
  std::optional<executorch::runtime::Method> method_;
  std::vector<std::unique_ptr<uint8_t[]>> host_;
};

}  // namespace trt_et::hard_use
