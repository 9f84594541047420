// Counters that each thread adds to in a slot of its own: a benchmark of the delegate must not
// measure the simulator.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "common/striped_lock.h"

namespace trt_et::cuda {

template <size_t count>
class SimCounters {
 public:
  void add(size_t which, uint64_t n = 1) {
    slots_[thread_slot()].values[which].fetch_add(n, std::memory_order_relaxed);
  }
  uint64_t sum(size_t which) const {
    uint64_t total = 0;
    for (const Slot& slot : slots_) total += slot.values[which].load(std::memory_order_relaxed);
    return total;
  }

 private:
  struct alignas(kCacheLine) Slot {
    std::array<std::atomic<uint64_t>, count> values{};
  };
  std::array<Slot, kThreadSlots> slots_;
};

}  // namespace trt_et::cuda
