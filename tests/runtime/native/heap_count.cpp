#include "heap_count.h"

#include <cstdlib>
#include <new>

#include "simulated_api.h"

namespace {

thread_local bool t_counting = false;
thread_local uint64_t t_count = 0;

}  // namespace

HeapCount::HeapCount() {
  t_count = 0;
  t_counting = true;
}

HeapCount::~HeapCount() { t_counting = false; }

uint64_t HeapCount::count() const { return t_count; }

// Replaces the whole program's; the other forms of new end here.
void* operator new(size_t size) {
  if (t_counting && trt_et::cuda::t_inside == 0) ++t_count;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
