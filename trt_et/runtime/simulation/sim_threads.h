// What keeps threads that use simulated GPUs out of each other's way: a benchmark of the delegate
// must not measure the simulator's locks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace trt_et::cuda {

inline constexpr size_t kSimSlots = 16;
inline constexpr size_t kCacheLine = 64;

// This thread's index among the slots; threads share one when there are many.
inline size_t sim_slot() {
  static std::atomic<size_t> threads{0};
  thread_local const size_t slot = threads.fetch_add(1) % kSimSlots;
  return slot;
}

// A shared mutex (std::shared_lock, std::unique_lock) for what is looked up all the time and seldom
// changed: readers take a lock of their own, a writer takes all of them.
class SimLock {
 public:
  void lock_shared() { slots_[sim_slot()].mutex.lock(); }
  void unlock_shared() { slots_[sim_slot()].mutex.unlock(); }
  void lock() {
    for (Slot& slot : slots_) slot.mutex.lock();
  }
  void unlock() {
    for (Slot& slot : slots_) slot.mutex.unlock();
  }

 private:
  struct alignas(kCacheLine) Slot {
    std::mutex mutex;
  };
  std::array<Slot, kSimSlots> slots_;
};

// Counters that each thread adds to in a slot of its own.
template <size_t count>
class SimCounters {
 public:
  void add(size_t which, uint64_t n = 1) {
    slots_[sim_slot()].values[which].fetch_add(n, std::memory_order_relaxed);
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
  std::array<Slot, kSimSlots> slots_;
};

}  // namespace trt_et::cuda
