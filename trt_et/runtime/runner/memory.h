// The memory of one method: its allocators and planned buffers, on the host and on devices.
#pragma once

#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/core/device_memory_buffer.h>
#include <executorch/runtime/core/hierarchical_allocator.h>
#include <executorch/runtime/executor/memory_manager.h>
#include <executorch/runtime/executor/method_meta.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace trt_et::runner {

struct FreeHost {
  void operator()(uint8_t* memory) const { std::free(memory); }
};
using HostMemory = std::unique_ptr<uint8_t, FreeHost>;

// Host memory of state that methods share (MemoryPlanningPass(share_mutable_buffers=True)):
// ExecuTorch plans it in every arena but the first, which each method has for itself.
class SharedArenas {
 public:
  static bool is_shared(size_t index, const executorch::runtime::etensor::Device& device) {
    return index > 0 && device.is_cpu();
  }
  // Makes the arenas as large as any method wants them; called for all methods before memory().
  void reserve(const executorch::runtime::MethodMeta& meta);
  // Null where there is no memory.
  uint8_t* memory(size_t index);

 private:
  std::map<size_t, size_t> sizes_;
  std::map<size_t, HostMemory> memory_;
};

// ExecuTorch's Module would do this, but ends the process where device memory is not to be had.
class MethodMemory {
 public:
  // False after a message on stderr.
  bool plan(const executorch::runtime::MethodMeta& meta, SharedArenas& shared);

  executorch::runtime::MemoryManager& manager() { return *manager_; }

  bool has_gpu_memory() const { return !device_.empty(); }

  // Writes the sizes of the planned buffers to stdout, a line for each device.
  void print() const;

  // The device whose planned memory holds `pointer`; null for the host. A tensor's own label says
  // less: a program that was planned for the host still labels what its delegates see.
  const executorch::runtime::etensor::Device* device_of(const void* pointer) const;

 private:
  // Null after a message on stderr.
  uint8_t* host_memory(size_t index, size_t bytes, SharedArenas& shared);

  executorch::extension::MallocMemoryAllocator method_allocator_;
  executorch::extension::MallocMemoryAllocator temp_allocator_;
  std::vector<HostMemory> host_;
  std::vector<executorch::runtime::DeviceMemoryBuffer> device_;
  std::vector<executorch::runtime::Span<uint8_t>> spans_;
  std::vector<executorch::runtime::etensor::Device> devices_;
  std::optional<executorch::runtime::HierarchicalAllocator> planned_;
  std::optional<executorch::runtime::MemoryManager> manager_;
};

}  // namespace trt_et::runner
