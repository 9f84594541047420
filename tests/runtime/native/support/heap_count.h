// Heap allocations of this thread that are neither the simulator's nor a fake library's.
#pragma once

#include <cstdint>

// Counts while it lives; one at a time for each thread.
class HeapCount {
 public:
  HeapCount();
  HeapCount(const HeapCount&) = delete;
  HeapCount& operator=(const HeapCount&) = delete;
  ~HeapCount();
  uint64_t count() const;
};

// While it lives, the n-th such allocation of this thread fails, and then each `again`-th one; 0:
// no other.
class HeapFault {
 public:
  explicit HeapFault(uint64_t n, uint64_t again = 0);
  HeapFault(const HeapFault&) = delete;
  HeapFault& operator=(const HeapFault&) = delete;
  ~HeapFault();
  uint64_t failures() const;
};
