// Every call that can fail fails in turn; methods come and go; threads share an engine.
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "provider_support.h"
#include "tests.h"

using namespace trt_et;

namespace {

// Every call of CUDA and TensorRT fails in turn, in load, call, capture, change and unload.
void test_faults(const LoadOptions& options) {
  const Bytes blob = doubling_blob();
  std::vector<float> host(16, 2.0F);
  const auto everything = [&]() -> Status {
    std::unique_ptr<Delegate> delegate;
    TRT_ET_TRY(try_load(blob, &delegate, options));
    std::vector<float> out(16, 0.0F);
    OwnedTensor x({2, 8}, host.data()), y({2, 8}, out.data());
    Status status;
    for (int i = 0; i < 5; ++i) {
      out.assign(16, 0.0F);
      Status one = call(*delegate, {&x.value, &y.value});
      CHECK(!one.ok() || out[15] == 4.0F);
      if (!one.ok()) status = std::move(one);
    }
    return status;
  };
  CHECK_OK(everything());
  const Counts before = stats();
  const uint64_t events = counter("live_events");
  int failures = 0;
  for (uint64_t n = 1;; ++n) {
    (void)trt_et_sim_fail_after(n);
    failures += everything().ok() ? 0 : 1;
    const bool done = trt_et_sim_fail_after(0) > 0;
    CHECK(counter("live_graphs") == 0 && counter("engines") == 0);
    CHECK(stats().live_bytes[0] == before.live_bytes[0] && counter("live_events") == events);
    CHECK_OK(everything());
    if (done) break;
  }
  CHECK(failures > 30);
}

void test_cycles() {
  const Bytes blob = doubling_blob();
  std::vector<float> host(16, 2.0F), out(16);
  OwnedTensor x({2, 8}, host.data()), y({2, 8}, out.data());
  const Counts before = stats();
  const uint64_t events = counter("live_events");
  for (int i = 0; i < 1000; ++i) {
    const auto delegate = load(blob);
    for (int run = 0; run < (i % 2 == 0 ? 1 : 4); ++run) {
      CHECK_OK(call(*delegate, {&x.value, &y.value}));
    }
  }
  CHECK(stats().live_bytes[0] == before.live_bytes[0]);
  CHECK(stats().mallocs - before.mallocs == stats().frees - before.frees);
  CHECK(counter("live_events") == events && counter("live_graphs") == 0);
}

void test_threads() {
  constexpr int kThreads = 8, kCalls = 1000;
  const Bytes blob = doubling_blob();
  const auto shared = load(blob);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const auto own = load(blob);
      std::vector<float> in(16, static_cast<float>(i)), out(16);
      OwnedTensor x({2, 8}, in.data()), y({2, 8}, out.data());
      for (int round = 0; round < kCalls; ++round) {
        out[3] = -1.0F;
        CHECK_OK(call(round % 16 == 0 ? *shared : *own, {&x.value, &y.value}));
        CHECK(out[3] == 2.0F * static_cast<float>(i));
        if (round % 250 == 0) (void)load(blob);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(counter("engines") == 1);
}

}  // namespace

void test_provider_endurance() {
  test_faults({});
  LoadOptions scratch;
  scratch.shared_device_memory = true;
  test_faults(scratch);
  test_cycles();
  test_threads();
}
