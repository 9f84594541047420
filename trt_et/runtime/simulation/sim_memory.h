// The memory of the simulated GPUs: host memory that belongs to one device, is poisoned when it is
// allocated and when it is freed, and is only reachable through checked ranges.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "cuda/cuda_api.h"

namespace trt_et::cuda {

class SimMemory {
 public:
  // `device` may be kPinned: host memory that all devices reach.
  static constexpr int kPinned = -1;
  Status allocate(int device, size_t size, void** pointer, bool managed = false);
  Status release(void* pointer);

  // Device or pinned memory, or host memory when no allocation holds the pointer. An error for
  // freed memory.
  Status find(const void* pointer, PointerInfo* info);

  // Whether [pointer, +size] lies in one live allocation of `device`. `what` names it in the error.
  Status check(const void* pointer, size_t size, int device, const char* what);
  // The same for memory that a kernel uses, which may be pageable.
  Status check_kernel(const void* pointer, size_t size, int device, const char* what);

  uint64_t live_bytes(int device);

  // From now on the GPUs reach pinned memory, and pageable memory.
  void set_integrated(bool integrated, bool pageable) {
    integrated_ = integrated;
    pageable_ = pageable;
  }

 private:
  struct Allocation {
    std::unique_ptr<void, decltype(&std::free)> memory{nullptr, &std::free};
    size_t size = 0;
    int device = 0;
    bool managed = false;  // the host reaches it, too
  };
  using Map = std::map<uintptr_t, Allocation>;

  Map::const_iterator holder(const void* pointer) const;
  bool was_freed(const void* pointer) const;
  void quarantine(Map::iterator freed);

  std::atomic<bool> integrated_{false};
  std::atomic<bool> pageable_{false};
  std::shared_mutex lock_;
  Map live_;
  // Freed memory is kept for a while, so that a use after free is reported as one, and its address
  // is not handed out again at once.
  std::deque<Allocation> freed_;
  size_t freed_bytes_ = 0;
};

}  // namespace trt_et::cuda
