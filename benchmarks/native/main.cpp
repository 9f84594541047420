// The measurements of benchmarks/runtime.py that are taken in C++, one a process, as "name value"
// lines:
//
//   trt_et_bench load PROGRAM ENGINE ROUNDS     a .pte, and its only engine (a nested program)
//   trt_et_bench counts PROGRAM host|device     of the simulated GPUs, for one steady call
//   trt_et_bench threads PROGRAM NOOP host|device ROUNDS    throughput of one and of two threads
//   trt_et_bench share PROGRAM METHODS          GPU memory of several methods
//   trt_et_bench rebind PROGRAM BUFFERS CALLS   waits of calls with the input in each in turn
#include <executorch/runtime/platform/runtime.h>
#include <malloc.h>
#include <sys/resource.h>
#include <time.h>
#include <trt_et/runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "loaded_method.h"

// The wheel has this library and not its header.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  bool _unsafe_reset_threadpool(uint32_t threads);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

namespace trt_et::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print(const char* name, double value) { std::printf("%s %.9g\n", name, value); }

uint64_t counter(const char* name) {
  uint64_t value = 0;
  if (trt_et_counter(name, &value) != 0) die("no simulated GPUs");
  return value;
}

uint64_t live_bytes() { return counter("live_bytes"); }

// Heap of this process without the simulated GPUs' memory, which is on it too.
double host_heap() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) - static_cast<double>(live_bytes());
}

// Seconds that this thread has had a processor.
double processor_time() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double page_faults() {
  rusage used;
  getrusage(RUSAGE_THREAD, &used);
  return static_cast<double>(used.ru_minflt);
}

struct Load {
  double seconds = 0;  // of the processor: a load does not wait, and other programs do not count
  double wall = 0;
  double kept = 0;
  double faults = 0;
};

Load load(const std::string& path) {
  const double before = host_heap(), faults = page_faults();
  const auto start = Clock::now();
  const double begun = processor_time();
  LoadedMethod method(path);
  return {processor_time() - begun, seconds_since(start), host_heap() - before,
          page_faults() - faults};
}

// What this machine takes to map a file and read one byte of each of its pages.
double touch(const std::string& path) {
  constexpr size_t kPage = 4096;
  const double begun = processor_time();
  auto loader = executorch::extension::MmapDataLoader::from(
      path.c_str(), executorch::extension::MmapDataLoader::MlockConfig::NoMlock);
  const size_t size = *loader->size();
  auto bytes = loader->load(0, size, {});
  volatile uint8_t sum = 0;
  for (size_t i = 0; i < size; i += kPage) {
    sum = static_cast<uint8_t>(sum + static_cast<const uint8_t*>(bytes->data())[i]);
  }
  return processor_time() - begun;
}

int bench_load(const std::string& program, const std::string& engine, int rounds) {
  (void)load(program), (void)load(engine);
  std::map<std::string, std::vector<double>> found;
  const auto note = [&](const std::string& who, const Load& load) {
    found[who + "_seconds"].push_back(load.seconds);
    found[who + "_wall_seconds"].push_back(load.wall);
    found[who + "_kept"].push_back(load.kept);
    found[who + "_faults"].push_back(load.faults);
  };
  for (int i = 0; i < rounds; ++i) {
    note("delegate", load(program));
    note("bare", load(engine));
    found["touch_seconds"].push_back(touch(program));
  }
  for (const auto& [name, values] : found) print(name.c_str(), median(values));
  return 0;
}

int bench_counts(const std::string& program, bool on_device) {
  constexpr int kRuns = 100;
  LoadedMethod method(program);
  method.bind(on_device);
  for (int i = 0; i < 20; ++i) method.execute();
  constexpr const char* kNames[] = {
      "calls",      "mallocs",    "frees",     "launches",  "synchronizations", "copies_h2d",
      "copies_d2h", "copies_d2d", "bytes_h2d", "bytes_d2h", "bytes_peer"};
  std::map<std::string, uint64_t> before;
  for (const char* name : kNames) before[name] = counter(name);
  for (int i = 0; i < kRuns; ++i) method.execute();
  for (const char* name : kNames) print(name, double(counter(name) - before[name]) / kRuns);
  return 0;
}

struct Throughput {
  double calls = 0;    // a second
  double seconds = 0;  // of a processor, for a call

  void take_best(const Throughput& other) {
    calls = std::max(calls, other.calls);
    seconds = seconds == 0 ? other.seconds : std::min(seconds, other.seconds);
  }
};

// Of `count` threads, each with a method of its own.
Throughput throughput(const std::string& path, bool on_device, int count) {
  constexpr auto kTime = std::chrono::milliseconds(300);
  constexpr uint64_t kQueued = 64;  // at most, with nothing to wait for
  std::atomic<int> ready{0};
  std::atomic<bool> go{false}, stop{false};
  struct alignas(128) Done {
    uint64_t calls = 0;
    double seconds = 0;
  };
  std::vector<Done> threads_done(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      LoadedMethod method(path);
      method.bind(on_device);
      for (int warm = 0; warm < 100; ++warm) method.execute();
      ++ready;
      while (!go) std::this_thread::yield();
      const double begun = processor_time();
      uint64_t done = 0;
      for (; !stop; ++done) {
        method.execute();
        if (on_device && done % kQueued == 0) (void)trt_et_wait(0);
      }
      threads_done[static_cast<size_t>(i)] = {done, processor_time() - begun};
    });
  }
  while (ready != count) std::this_thread::yield();
  const auto start = Clock::now();
  go = true;
  std::this_thread::sleep_for(kTime);
  stop = true;
  const double time = seconds_since(start);
  for (std::thread& thread : threads) thread.join();
  Done sum;
  for (const Done& done : threads_done) {
    sum.calls += done.calls;
    sum.seconds += done.seconds;
  }
  const auto calls = static_cast<double>(sum.calls);
  return {calls / time, sum.seconds / calls};
}

int bench_threads(const std::string& program, const std::string& noop, bool on_device, int rounds) {
  // The kernels must not take the second core.
  executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(1);
  Throughput one, two, noop_one, noop_two;
  for (int i = 0; i < rounds; ++i) {
    // The best of each: whatever else runs on this machine only takes away.
    one.take_best(throughput(program, on_device, 1));
    noop_one.take_best(throughput(noop, false, 1));
    two.take_best(throughput(program, on_device, 2));
    noop_two.take_best(throughput(noop, false, 2));
  }
  const double scaling = two.calls / one.calls, noop_scaling = noop_two.calls / noop_one.calls;
  print("one_thread", one.calls), print("two_threads", two.calls);
  print("noop_one_thread", noop_one.calls), print("noop_two_threads", noop_two.calls);
  print("scaling", scaling), print("noop_scaling", noop_scaling);
  print("ratio", scaling / noop_scaling);
  print("processor_us_one_thread", one.seconds * 1e6);
  print("processor_us_two_threads", two.seconds * 1e6);
  return 0;
}

int bench_share(const std::string& program, int count) {
  std::vector<std::unique_ptr<LoadedMethod>> methods;
  for (int i = 0; i < count; ++i) {
    methods.push_back(std::make_unique<LoadedMethod>(program));
    methods.back()->bind(false);
    methods.back()->execute();
    if (i == 0) {
      print("bytes_of_one", static_cast<double>(live_bytes()));
      print("engines_of_one", static_cast<double>(counter("engines")));
    }
  }
  print("bytes", static_cast<double>(live_bytes()));
  print("engines", static_cast<double>(counter("engines"))),
      print("engine_loads", static_cast<double>(counter("engine_loads")));
  methods.clear();
  print("bytes_after", static_cast<double>(live_bytes()));
  print("engines_after", static_cast<double>(counter("engines")));
  return 0;
}

// Number of execution contexts of the only engine that is loaded.
double contexts() {
  char text[1024];
  trt_et_describe_engines(text, sizeof text);
  const std::string key = "\"contexts\":";
  const char* found = std::strstr(text, key.c_str());
  if (found == nullptr) die("no engine is loaded");
  return std::atof(found + key.size());
}

int bench_rebind(const std::string& program, size_t count, int calls) {
  LoadedMethod method(program);
  method.bind(true);
  const std::vector<void*> buffers = method.inputs_on_device(count);
  const uint64_t before = counter("synchronizations");
  for (int i = 0; i < calls; ++i) {
    method.set_input(0, buffers[static_cast<size_t>(i) % count]);
    method.execute();
  }
  print("waits", static_cast<double>(counter("synchronizations") - before));
  print("contexts", contexts());
  return 0;
}

int run(const std::vector<std::string>& words) {
  const auto is = [&](const char* name, size_t count) {
    return words.size() == count + 1 && words[0] == name;
  };
  if (is("load", 3)) return bench_load(words[1], words[2], std::atoi(words[3].c_str()));
  if (is("counts", 2)) return bench_counts(words[1], words[2] == "device");
  if (is("threads", 4)) {
    return bench_threads(words[1], words[2], words[3] == "device", std::atoi(words[4].c_str()));
  }
  if (is("share", 2)) return bench_share(words[1], std::atoi(words[2].c_str()));
  if (is("rebind", 3)) {
    return bench_rebind(words[1], std::strtoul(words[2].c_str(), nullptr, 10),
                        std::atoi(words[3].c_str()));
  }
  std::fprintf(stderr, "trt_et_bench: see the head of benchmarks/native/main.cpp\n");
  return 1;
}

}  // namespace
}  // namespace trt_et::bench

int main(int argc, char** argv) {
  executorch::runtime::runtime_init();
  trt_et_device_count();  // Chooses CUDA, so that its counters exist.
  return trt_et::bench::run({argv + 1, argv + argc});
}
