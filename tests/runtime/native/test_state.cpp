// State that stays on the GPU: a buffer and its new value are the same planned memory.
#include <algorithm>
#include <thread>

#include "cuda/device_allocator.h"
#include "heap_count.h"
#include "provider_support.h"
#include "tests.h"

using namespace trt_et;
using executorch::runtime::Span;

namespace {

// An engine that writes the new state before it has read all of the old one.
Bytes state_blob() {
  return plan_blob(
      "fake\ninput new float32 8\ninput state float32 8\noutput next float32 8\n"
      "output out float32 8\nsum next state new\nsum out state new\n");
}

// Every call adds 1 to the state and returns the state after it.
void test_in_place(bool graphs) {
  LoadOptions options;
  options.cuda_graphs = graphs;
  const auto delegate = load(state_blob(), options);
  Device one(8, 0, 1.0F), state(8, 0, 0.0F), out(8, 0, 0.0F);
  OwnedTensor a({8}, one.data), b({8}, state.data), c({8}, out.data);
  std::vector<EValue*> values = {&a.value, &b.value, &b.value, &c.value};
  const Span<EValue*> arguments(values.data(), values.size());
  for (int i = 1; i <= 5; ++i) {
    CHECK_OK(delegate->execute(arguments));
    CHECK(out.read(3) == static_cast<float>(i) && state.read(7) == static_cast<float>(i));
  }
  const Counts before = stats();
  {
    const HeapCount heap;
    for (int i = 0; i < 10; ++i) CHECK_OK(delegate->execute(arguments));
    CHECK(heap.count() == 0);
  }
  const Counts after = stats();
  CHECK(after.calls - before.calls == (graphs ? 30u : 40u));
  CHECK(after.copies_d2d - before.copies_d2d == (graphs ? 0u : 10u));
  CHECK(after.bytes_h2d == before.bytes_h2d && after.bytes_d2h == before.bytes_d2h);
  CHECK(after.mallocs == before.mallocs && after.synchronizations == before.synchronizations);
  CHECK(out.read(0) == 15.0F && state.read(0) == 15.0F);
}

// The same delegate with its state elsewhere, and then partly on an input: what was found out about
// one set of addresses is not believed of another.
void test_moving_state() {
  const auto delegate = load(state_blob());
  Device one(8, 0, 1.0F), state(160, 0, 0.0F), other(8, 0, 5.0F), out(8, 0, 0.0F);
  OwnedTensor a({8}, one.data), b({8}, state.data), c({8}, out.data), d({8}, other.data);
  for (int i = 1; i <= 4; ++i) {
    CHECK_OK(call(*delegate, {&a.value, &b.value, &d.value, &c.value}));
    CHECK(out.read(2) == 1.0F && other.read(2) == 1.0F && state.read(2) == 0.0F);
  }
  for (int i = 1; i <= 4; ++i) {
    CHECK_OK(call(*delegate, {&a.value, &d.value, &d.value, &c.value}));
    CHECK(out.read(2) == 1.0F + static_cast<float>(i) && other.read(2) == out.read(2));
  }
  for (int i = 1; i <= 4; ++i) {
    CHECK_OK(call(*delegate, {&a.value, &b.value, &b.value, &c.value}));
    CHECK(out.read(2) == static_cast<float>(i) && state.read(2) == static_cast<float>(i));
  }
  // A longer output that begins before its input and ends in it, and one behind all of it.
  const auto wide = load(plan_blob(
      "fake\ninput x float32 8\ninput n float32 1\noutput y float32 72\noutput z float32 8\n"
      "scale y n 9\nscale z x 2\n"));
  OwnedTensor n({1}, one.data), y({72}, state.data), x({8}, state.data + 256);
  OwnedTensor behind({8}, state.data + 256 + 256), z({8}, out.data);
  for (int i = 0; i < 4; ++i) {
    state.fill(3.0F);
    CHECK_OK(call(*wide, {&x.value, &n.value, &y.value, &z.value}));
    CHECK(out.read(7) == 6.0F && state.read(71) == 9.0F && state.read(72) == 3.0F);
    const Counts before = stats();
    CHECK_OK(call(*wide, {&behind.value, &n.value, &y.value, &z.value}));
    // The output is in place; the input, once it has moved often, is copied.
    CHECK(stats().copies_d2d - before.copies_d2d == (i == 0 ? 0u : 1u));
  }
}

// State that the program names begins at zero, once, in memory that nobody has cleared; also where
// the engine is on another GPU, the first call is refused, and the next one is another thread's.
void test_state_is_cleared_before_the_first_run() {
  for (const int device : {0, 1}) {
    LoadOptions options;
    options.state_inputs = {1};
    const auto delegate = load(state_blob(), options);
    Device one(8, 0, 1.0F), state(8, device, 7.0F), out(8, 0, 0.0F);
    OwnedTensor a({8}, one.data), b({8}, state.data), c({8}, out.data), wrong({4}, one.data);
    const auto add_one = [&](float expected) {
      CHECK_OK(call(*delegate, {&a.value, &b.value, &b.value, &c.value}));
      CHECK(out.read(3) == expected && state.read(7) == expected);
    };
    CHECK_FAILS(call(*delegate, {&wrong.value, &b.value, &b.value, &c.value}), "shape");
    std::thread([&] { add_one(1.0F); }).join();
    for (int i = 2; i <= 4; ++i) add_one(static_cast<float>(i));
    CHECK(one.read(0) == 1.0F);
  }
  LoadOptions wrong;
  wrong.state_inputs = {2};
  std::unique_ptr<Delegate> none;
  CHECK_FAILS(try_load(state_blob(), &none, wrong), "state_inputs names input 2 of 2");
}

// Planned memory begins at zero, whatever was there.
void test_planned_memory_is_zero() {
  constexpr size_t kSize = 1 << 20;
  for (int round = 0; round < 3; ++round) {
    auto memory = cuda_allocator().allocate(kSize, 1, 16);
    CHECK(memory.ok());
    const auto* bytes = static_cast<const uint8_t*>(*memory);
    CHECK(std::count(bytes, bytes + kSize, 0) == static_cast<std::ptrdiff_t>(kSize));
    cuda_allocator().deallocate(*memory, 1);
  }
  // Where that fails there is no memory, and none is lost.
  const Counts before = stats();
  for (uint64_t n = 1;; ++n) {
    (void)trt_et_sim_fail_after(n);
    auto memory = cuda_allocator().allocate(64, 0, 16);
    const bool done = trt_et_sim_fail_after(0) > 0;
    if (memory.ok()) cuda_allocator().deallocate(*memory, 0);
    CHECK(stats().live_bytes[0] == before.live_bytes[0]);
    if (done) break;
  }
}

}  // namespace

void test_state() {
  test_in_place(true);
  test_in_place(false);
  test_moving_state();
  test_state_is_cleared_before_the_first_run();
  test_planned_memory_is_zero();
}
