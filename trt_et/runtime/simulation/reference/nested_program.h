// An ExecuTorch program inside an engine blob, and runs of its method "forward" on host memory.
#pragma once

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "common/dtype.h"
#include "common/status.h"
#include "host_engine.h"

namespace trt_et::reference {

// An input or output of "forward": its shape is the upper bound.
struct Slot {
  ScalarType dtype = ScalarType::Float;
  std::vector<int32_t> sizes;
  std::vector<uint8_t> dim_order;
};

// The program; shared by the contexts, which only read it.
class NestedProgram {
 public:
  // `bytes` must outlive the object, unless they are misaligned and are copied.
  static Status load(const void* bytes, size_t size, std::unique_ptr<NestedProgram>* program);

  const std::vector<Slot>& inputs() const { return inputs_; }
  const std::vector<Slot>& outputs() const { return outputs_; }
  bool copied() const { return copy_ != nullptr; }
  executorch::runtime::Program& program() { return *program_; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  NestedProgram() = default;
  Status read_slots();

  std::unique_ptr<void, Free> copy_;
  std::optional<executorch::extension::BufferDataLoader> loader_;
  std::optional<executorch::runtime::Program> program_;
  std::vector<Slot> inputs_;
  std::vector<Slot> outputs_;
};

// "forward", with memory of its own. One run at a time.
class NestedMethod {
 public:
  static Status load(NestedProgram& program, std::unique_ptr<NestedMethod>* method);

  // The steps of a run. An input's memory must stay until execute() has returned.
  Status set_input(size_t index, const HostMemory& memory);
  Status execute();
  // Writes the output; its `dims` become the shape that was written.
  Status take_output(size_t index, HostMemory* memory);

 private:
  NestedMethod() = default;
  Status plan_memory(const executorch::runtime::MethodMeta& meta);

  NestedProgram* program_ = nullptr;
  executorch::extension::MallocMemoryAllocator method_allocator_;
  executorch::extension::MallocMemoryAllocator temp_allocator_;
  std::vector<std::unique_ptr<uint8_t[]>> buffers_;
  std::vector<executorch::runtime::Span<uint8_t>> spans_;
  std::vector<std::unique_ptr<uint8_t[]>> output_buffers_;
  std::optional<executorch::runtime::HierarchicalAllocator> planned_;
  std::optional<executorch::runtime::MemoryManager> manager_;
  std::optional<executorch::runtime::Method> method_;
};

}  // namespace trt_et::reference
