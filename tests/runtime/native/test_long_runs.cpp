// Runs that repeat themselves allocate nothing, however many there are (TRT_ET_EXECUTES).
#include "amounts.h"
#include "heap_count.h"
#include "provider_support.h"
#include "tests.h"

using namespace trt_et;
using executorch::runtime::Span;

namespace {

// Allocations of `count` runs, by the delegate and on the GPUs.
uint64_t allocations(void* from, void* to, uint64_t count) {
  const auto delegate = load(unary_blob("2,8", "scratch 512\nscale y x 2\n"));
  OwnedTensor x({2, 8}, from), y({2, 8}, to);
  std::vector<EValue*> values = {&x.value, &y.value};
  const Span<EValue*> arguments(values.data(), values.size());
  for (int i = 0; i < 8; ++i) CHECK_OK(delegate->execute(arguments));
  const Counts before = stats();
  const HeapCount heap;
  for (uint64_t i = 0; i < count; ++i) CHECK_OK(delegate->execute(arguments));
  return heap.count() + stats().mallocs - before.mallocs;
}

}  // namespace

void test_long_runs(const std::string&) {
  const uint64_t count = amount("TRT_ET_EXECUTES", 2000);
  std::vector<float> in(16, 1.5F), out(16);
  const uint64_t on_host = allocations(in.data(), out.data(), count / 2);
  CHECK(out[15] == 3.0F);
  Device from(16, 0, 2.5F), to(16, 0, 0.0F);
  const uint64_t on_device = allocations(from.data, to.data, count - count / 2);
  CHECK(to.read(15) == 5.0F);
  std::printf("R9 %llu executes, %llu allocations\n", static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(on_host + on_device));
  CHECK(on_host == 0 && on_device == 0);
}
