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
