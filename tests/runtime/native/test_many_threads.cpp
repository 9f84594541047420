// Threads that load, run, unload and change options at the same time, with engines that they share:
// each gets its own results. TRT_ET_THREAD_EXECUTES runs by each of 8 threads, and
// TRT_ET_THREAD_LOADS loads by all of them together.
#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "amounts.h"
#include "backend_calls.h"
#include "tests.h"

using namespace trt_et;

namespace {

constexpr uint64_t kThreads = 8;

Bytes blob_that_scales_by(int factor) {
  return unary_blob("8", "scratch 64\nscale y x " + std::to_string(factor) + "\n");
}

void set(const char* key, const char* value) { CHECK(set_option(key, value) == Error::Ok); }

void change_options(uint64_t number) {
  set("cuda_graphs", number % 2 == 0 ? "on" : "off");
  set("device", number % 3 == 0 ? "1" : "");
  set("blocking_waits", number % 4 == 0 ? "1" : "0");
}

void work(uint64_t number, const BackendDelegate& shared, const std::array<Bytes, 3>& blobs,
          uint64_t executes, uint64_t loads) {
  const uint64_t every = std::max<uint64_t>(executes / loads, 1);
  std::vector<float> in(8, static_cast<float>(number + 1)), out(8);
  OwnedTensor x({8}, in.data()), y({8}, out.data());
  BackendDelegate own;
  uint64_t loaded = number;
  CHECK(own.init(blobs[loaded % 3]) == Error::Ok);
  for (uint64_t i = 0; i < executes; ++i) {
    const bool use_shared = i % 16 == 0;
    out[5] = -1.0F;
    CHECK((use_shared ? shared : own).execute({&x.value, &y.value}) == Error::Ok);
    const auto factor = static_cast<float>(use_shared ? 2 : loaded % 3 + 2);
    CHECK(out[5] == factor * static_cast<float>(number + 1));
    if (i % every != every - 1 || loaded + 1 >= number + loads) continue;
    CHECK(own.init(blobs[++loaded % 3]) == Error::Ok);
    change_options(loaded);
  }
}

}  // namespace

void test_many_threads(const std::string&) {
  const uint64_t executes = amount("TRT_ET_THREAD_EXECUTES", 300);
  const uint64_t loads = std::max<uint64_t>(amount("TRT_ET_THREAD_LOADS", 40) / kThreads, 1);
  const std::array<Bytes, 3> blobs = {blob_that_scales_by(2), blob_that_scales_by(3),
                                      blob_that_scales_by(4)};
  {
    BackendDelegate shared;
    CHECK(shared.init(blobs[0]) == Error::Ok);
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { work(i, shared, blobs, executes, loads); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const char* key : {"cuda_graphs", "device", "blocking_waits"}) set(key, "");
  CHECK(counter("engines") == 0);
  std::printf("R7 8 threads, %llu executes, %llu loads, 0 reports\n",
              static_cast<unsigned long long>(kThreads * executes),
              static_cast<unsigned long long>(kThreads * loads));
}
