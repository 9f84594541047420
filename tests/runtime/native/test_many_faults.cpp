// More than one call fails: of CUDA and TensorRT, again and again, or all of them from some moment
// on (a GPU that is gone, while threads use it); and every allocation of the heap. A failure is an
// error and never a wrong result, nothing is lost, and the next load works.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>

#include "backend_calls.h"
#include "heap_count.h"
#include "tests.h"

using namespace trt_et;

namespace {

// Loads, runs and unloads; whether all of that worked. A run that reports success has the right
// result.
bool everything(const Bytes& blob) {
  BackendDelegate delegate;
  if (delegate.init(blob) != Error::Ok) return false;
  float in[16], out[16];
  std::fill_n(in, 16, 2.0F);
  OwnedTensor x({2, 8}, in), y({2, 8}, out);
  bool fine = true;
  for (int i = 0; i < 5; ++i) {
    std::fill_n(out, 16, 0.0F);
    const bool done = delegate.execute({&x.value, &y.value}) == Error::Ok;
    CHECK(!done || (out[0] == 4.0F && out[15] == 4.0F));
    fine = fine && done;
  }
  return fine;
}

std::vector<uint64_t> what_is_left() {
  return {counter("live_bytes"), counter("engines"), counter("live_graphs"), counter("live_events"),
          counter("live_streams")};
}

void check_recovered(const Bytes& blob, const std::vector<uint64_t>& before) {
  CHECK(what_is_left() == before);
  CHECK(everything(blob));
  CHECK(what_is_left() == before);
}

// `run` makes the n-th call fail, and from there on each `again`-th one, for every n; it sets how
// many failed, and returns whether everything() worked.
template <typename Run>
uint64_t fail_each(const Bytes& blob, uint64_t first, const Run& run) {
  const std::vector<uint64_t> before = what_is_left();
  uint64_t all = 0;
  for (uint64_t n = first, failures = 1; failures > 0; ++n) {
    const bool fine = run(n, &failures);
    all += failures;
    check_recovered(blob, before);
    CHECK(failures > 0 || fine);
  }
  return all;
}

uint64_t fail_calls(const Bytes& blob, uint64_t again) {
  return fail_each(blob, 1, [&](uint64_t n, uint64_t* failures) {
    const uint64_t so_far = counter("failures");
    trt_et_sim_fail_again(again);
    (void)trt_et_sim_fail_after(n);
    const bool fine = everything(blob);
    (void)trt_et_sim_fail_after(0);
    *failures = counter("failures") - so_far;
    return fine;
  });
}

// How many allocations it takes to read a blob's metadata. The library that reads JSON allocates in
// its destructors, so that the process ends where those fail.
uint64_t allocations_of_metadata() {
  const Bytes blob = make_blob(io("2,8"), "plan", ",\"builder\":\"nobody\"", false);
  BackendDelegate delegate;
  const HeapCount heap;
  CHECK(delegate.init(blob) != Error::Ok);
  return heap.count() + 8;  // That blob names less.
}

uint64_t fail_allocations(const Bytes& blob, uint64_t again) {
  return fail_each(blob, allocations_of_metadata(), [&](uint64_t n, uint64_t* failures) {
    const HeapFault fault(n, again);
    bool fine = false;
    try {
      fine = everything(blob);
    } catch (const std::bad_alloc&) {  // One of this test's own allocations.
    }
    *failures = fault.failures();
    return fine;
  });
}

// From some moment on every call fails, on all threads, and later none does: what comes out in
// between is right, or an error, and the threads end.
uint64_t lose_gpu(const Bytes& blob) {
  constexpr int kThreads = 4, kRounds = 10;
  const std::vector<uint64_t> before = what_is_left();
  std::atomic<uint64_t> failed{0};
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::thread> threads;
    std::atomic<int> done{0};
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < 20; ++n) failed += everything(blob) ? 0 : 1;
        ++done;
      });
    }
    while (done < kThreads) {
      trt_et_sim_fail_again(1);
      (void)trt_et_sim_fail_after(97);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      (void)trt_et_sim_fail_after(0);
      std::this_thread::yield();
    }
    for (std::thread& thread : threads) thread.join();
  }
  (void)trt_et_sim_fail_after(0);
  check_recovered(blob, before);
  return failed;
}

}  // namespace

void test_many_faults(const std::string&) {
  const Bytes blob = scale_blob();
  CHECK(everything(blob));
  uint64_t calls = 0, allocations = 0;
  for (const uint64_t again : {0, 1, 2, 3, 7, 19}) calls += fail_calls(blob, again);
  for (const uint64_t again : {0, 1, 2, 3, 7, 19}) allocations += fail_allocations(blob, again);
  const uint64_t lost = lose_gpu(blob);
  std::printf(
      "R5 %llu calls, %llu allocations, %llu runs of a lost GPU failed; none left anything\n",
      static_cast<unsigned long long>(calls), static_cast<unsigned long long>(allocations),
      static_cast<unsigned long long>(lost));
  CHECK(calls > 100 && allocations > 100 && lost > 0);
}
