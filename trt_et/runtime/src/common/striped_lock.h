// Locks for what many threads look up all the time and seldom change: threads that only read write
// to no memory that another one uses.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

namespace trt_et {

inline constexpr size_t kThreadSlots = 16;
// Two lines: processors fetch them in pairs.
inline constexpr size_t kCacheLine = 128;

// This thread's index among the slots; threads share one when there are many.
inline size_t thread_slot() {
  static std::atomic<size_t> threads{0};
  thread_local size_t slot = kThreadSlots;  // none yet
  if (slot == kThreadSlots) slot = threads.fetch_add(1) % kThreadSlots;
  return slot;
}

// A shared mutex (std::shared_lock, std::unique_lock): readers take a lock of their own, a writer
// takes all of them.
class StripedLock {
 public:
  void lock_shared() { slots_[thread_slot()].mutex.lock(); }
  void unlock_shared() { slots_[thread_slot()].mutex.unlock(); }
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
  std::array<Slot, kThreadSlots> slots_;
};

}  // namespace trt_et
