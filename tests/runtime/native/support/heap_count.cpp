#include "heap_count.h"

#include <cstdlib>
#include <new>

#include "simulated_api.h"

namespace {

thread_local bool t_counting = false;
thread_local uint64_t t_count = 0;
thread_local uint64_t t_until_failure = 0, t_again = 0, t_failures = 0;

bool fails_now() {
  if (t_until_failure == 0 || --t_until_failure > 0) return false;
  t_until_failure = t_again;
  ++t_failures;
  return true;
}

}  // namespace

HeapCount::HeapCount() {
  t_count = 0;
  t_counting = true;
}

HeapCount::~HeapCount() { t_counting = false; }

uint64_t HeapCount::count() const { return t_count; }

HeapFault::HeapFault(uint64_t n, uint64_t again) {
  t_until_failure = n;
  t_again = again;
  t_failures = 0;
}

HeapFault::~HeapFault() { t_until_failure = 0; }

uint64_t HeapFault::failures() const { return t_failures; }

// Replaces the whole program's; the other forms of new end here.
void* operator new(size_t size) {
  if (trt_et::cuda::t_inside == 0) {
    if (t_counting) ++t_count;
    if (fails_now()) throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
