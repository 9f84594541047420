// Four threads load, run and unload programs, in an order of chance, for a long time: outputs stay
// the same, and memory and the time of a run stay where they were.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>

#include "commands.h"

namespace trt_et::hard_use {
namespace {

using Clock = std::chrono::steady_clock;
using Verification = executorch::runtime::Program::Verification;

constexpr unsigned kThreads = 4;
constexpr int kWindows = 20;

// Seconds that this thread has had a processor: other programs on the machine do not count.
double processor_time() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Soak {
  explicit Soak(const std::vector<Bytes>& given) : programs(given) {}

  const std::vector<Bytes>& programs;
  std::vector<Bytes> expected;
  std::atomic<uint64_t> loads{0}, executes{0}, wrong{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::vector<double> times;  // of runs of the first program, in this window

  void work(unsigned seed) {
    std::mt19937 random(seed);
    while (!stop) {
      const size_t which = random() % programs.size();
      LoadedProgram loaded(programs[which].data(), programs[which].size());
      if (!loaded.load(Verification::Minimal)) die(last_error());
      ++loads;
      for (unsigned left = random() % 200; left > 0 && !stop; --left) {
        const double start = processor_time();
        if (!loaded.execute()) die(last_error());
        const double took = processor_time() - start;
        ++executes;
        if (loaded.outputs() != expected[which]) ++wrong;
        if (which != 0) continue;
        const std::lock_guard<std::mutex> lock(mutex);
        times.push_back(took);
      }
    }
  }
};

}  // namespace

int run_soak(const std::vector<Bytes>& programs, double seconds) {
  Soak soak(programs);
  for (const Bytes& program : programs) {
    LoadedProgram loaded(program.data(), program.size());
    if (!loaded.load(Verification::Minimal) || !loaded.execute()) die(last_error());
    soak.expected.push_back(loaded.outputs());
  }
  const uint64_t device = counter("live_bytes");
  // Between windows every thread has ended, so that what is left is what was lost.
  std::vector<double> heaps, medians;
  const auto window = std::chrono::duration<double>(seconds / kWindows);
  for (int i = 0; i < kWindows; ++i) {
    soak.stop = false;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back(&Soak::work, &soak, static_cast<unsigned>(i) * kThreads + t);
    }
    std::this_thread::sleep_for(window);
    soak.stop = true;
    for (std::thread& thread : threads) thread.join();
    medians.push_back(median(std::move(soak.times)));
    soak.times = {};
    soak.times.shrink_to_fit();
    heaps.push_back(host_heap());
  }
  print("loads", static_cast<double>(soak.loads));
  print("executes", static_cast<double>(soak.executes));
  print("wrong_outputs", static_cast<double>(soak.wrong));
  print("host_growth", heaps.back() - heaps[kWindows / 4]);
  print("device_growth", static_cast<double>(counter("live_bytes") - device));
  print("engines", static_cast<double>(counter("engines")));
  const auto half = medians.begin() + kWindows / 2;
  print("first_half_us", median({medians.begin(), half}) * 1e6);
  print("second_half_us", median({half, medians.end()}) * 1e6);
  return 0;
}

}  // namespace trt_et::hard_use
