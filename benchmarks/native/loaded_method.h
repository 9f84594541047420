// A method of a .pte, loaded and given inputs.
#pragma once

#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory.h"

namespace trt_et::bench {

// Prints the reason and ends the process: a benchmark has nothing to go on with.
[[noreturn]] void die(const std::string& what);

class LoadedMethod {
 public:
  explicit LoadedMethod(const std::string& path);
  ~LoadedMethod();

  // Inputs of ones (zeros but in float32) and outputs, on the host, or in memory of GPU 0 for a
  // program without copies.
  void bind(bool on_device);

  // The tensors of `inputs` in memory of GPU 0, with their own sizes: a dynamic program's
  // MethodMeta has upper bounds only.
  struct Input {
    std::vector<int32_t> sizes;
    std::string bytes;
  };
  void bind_on_device(const std::vector<Input>& inputs);

  // `count` buffers of ones on GPU 0, each of the first input's size.
  std::vector<void*> inputs_on_device(size_t count);

  // With the sizes of MethodMeta where there are no others.
  void set_input(size_t index, void* data, std::vector<int32_t> sizes = {});
  // From the host, for a program that takes its inputs there.
  void set_input(size_t index, const Input& input);

  void execute();

  executorch::runtime::Method& method() { return *method_; }

 private:
  void* memory_of(const executorch::runtime::TensorInfo& info, bool on_device);
  void check_size(size_t index, const Input& input);
  void* on_device(const void* host, size_t bytes);
  void bind_outputs(bool on_device);

  std::optional<executorch::extension::MmapDataLoader> loader_;
  std::optional<executorch::runtime::Program> program_;
  runner::SharedArenas arenas_;
  runner::MethodMemory memory_;
  std::optional<executorch::runtime::Method> method_;
  std::vector<std::unique_ptr<uint8_t[]>> host_;
  std::vector<void*> device_;
};

}  // namespace trt_et::bench
