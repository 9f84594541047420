// Questions that need a GPU, each answered as "name value" lines:
//
//   gpu_probe costs PROGRAM ENGINE LIBRARY ROUNDS TENSOR=BYTES...
//   gpu_probe order PROGRAM ROUNDS
//   gpu_probe rebind|barrier PROGRAM ENGINE LIBRARY ROUNDS TENSOR=BYTES...
//   gpu_probe static|contexts PROGRAM
//   gpu_probe caller PART PROGRAM ROUNDS
//   gpu_probe memory PROGRAM METHODS
//   gpu_probe outputs PROGRAM OUTPUTS FILE:SIZExSIZE...
//   gpu_probe times PROGRAM ROUNDS OUTPUTS FILE:SIZExSIZE...
//
// "costs" times a call through ExecuTorch and the bare API in one process: medians of the host's
// clock in microseconds, "queued" until a call returns, "done" until its stream is empty.
// TRT_ET_CUDA_GRAPHS=0 switches the delegate's graphs off; the probe captures the bare one itself.
// "memory" loads and runs the program's method several times, keeps each, and prints the bytes that
// all of them take on the GPU, without what the first use of TensorRT takes, how many engines there
// are, and what 50 more loads leave when they are dropped. "times" times a load and each call of
// any program with its inputs and outputs on the GPU, on the bytes of files, and writes the outputs
// of a last call, whose memory was filled with ones before, into OUTPUTS-0.bin and so on.
// stream_order.h, cuda_rules.h and callers.h describe the others.
//
// PROGRAM is a .pte with one engine of static shapes and its inputs and outputs on the GPU. ENGINE
// is that engine; the tensors are its inputs, then its output.
#include <executorch/runtime/platform/runtime.h>
#include <trt_et/runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bare_engine.h"
#include "bound_program.h"
#include "callers.h"
#include "cuda/cuda_api.h"
#include "cuda_rules.h"
#include "loaded_method.h"
#include "stream_order.h"

namespace trt_et::gpu_check {
namespace {

using Clock = std::chrono::steady_clock;

// How often a method is loaded, run and dropped.
constexpr int kLoads = 50;

// Calls before those that are timed.
constexpr int kWarmUp = 10;

// Calls between two waits: few enough that the stream's queue never fills up.
constexpr int kCalls = 16;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Way {
  const char* name;
  std::function<void()> call;
  std::vector<double> queued, done;
};

// All ways take turns, so that what else happens on this machine meets all of them.
void measure(std::vector<Way>& ways, int rounds, cuda::Api& api, cuda::Stream stream) {
  const auto wait = [&] { check(api.synchronize_stream(stream), "waiting"); };
  for (int round = -3; round < rounds; ++round) {
    for (Way& way : ways) {
      auto start = Clock::now();
      for (int i = 0; i < kCalls; ++i) way.call();
      const double queued = microseconds_since(start) / kCalls;
      wait();
      start = Clock::now();
      for (int i = 0; i < kCalls; ++i) way.call(), wait();
      if (round < 0) continue;  // The first rounds warm up, and the delegate records its graph.
      way.queued.push_back(queued);
      way.done.push_back(microseconds_since(start) / kCalls);
    }
  }
}

void print(const std::string& name, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::printf("%s %.6g\n", name.c_str(), values[values.size() / 2]);
}

void* device_memory(cuda::Api& api, size_t bytes, cuda::Stream stream) {
  void* memory = nullptr;
  check(api.allocate(std::max<size_t>(bytes, 1), &memory), "allocating");
  check(api.zero(memory, bytes, stream), "clearing");
  return memory;
}

int run(const std::string& program, const std::string& engine, const std::string& library,
        int rounds, const std::vector<IoTensor>& tensors) {
  cuda::Api* api = nullptr;
  check(cuda::access(&api), "CUDA");
  cuda::Stream stream = nullptr;
  cuda::Entered entered;
  check(api->enter_device(0, &entered), "choosing cuda:0");
  check(api->create_stream(cuda::StreamKind::non_blocking, &stream), "making a stream");
  if (trt_et_use_stream(0, stream) != 0) bench::die("using a stream");

  auto start = Clock::now();
  bench::LoadedMethod method(program);
  print("load_delegate", {microseconds_since(start)});
  method.bind(true);
  method.execute();  // Whatever is done once is done before the bare engine is loaded.
  check(api->synchronize_stream(stream), "the first run");

  std::ifstream file(engine, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  start = Clock::now();
  BareEngine bare(library, bytes);
  bare.create_context();
  print("load_bare", {microseconds_since(start)});
  std::vector<void*> addresses;
  for (const IoTensor& tensor : tensors) {
    addresses.push_back(device_memory(*api, tensor.bytes, stream));
  }
  const auto enqueue = [&] {
    if (!bare.enqueue(tensors, addresses, stream)) bench::die("a bare run");
  };
  enqueue();
  check(api->synchronize_stream(stream), "the first bare run");
  // Not every engine can be recorded; the other ways are measured still.
  cuda::Graph graph = nullptr;
  check(api->begin_capture(stream), "recording");
  const bool queued = bare.enqueue(tensors, addresses, stream);
  const bool recorded = api->end_capture(stream, &graph).ok() && queued;

  std::vector<Way> ways;
  ways.push_back({"delegate", [&] { method.execute(); }, {}, {}});
  ways.push_back({"bare", enqueue, {}, {}});
  const auto launch = [&] { check(api->launch_graph(graph, stream), "a graph"); };
  if (recorded) ways.push_back({"bare_graph", launch, {}, {}});
  measure(ways, rounds, *api, stream);
  for (const Way& way : ways) {
    print(std::string(way.name) + "_queued", way.queued);
    print(std::string(way.name) + "_done", way.done);
  }
  if (graph != nullptr) check(api->destroy_graph(graph), "dropping a graph");
  for (void* memory : addresses) check(api->release(memory), "releasing");
  (void)trt_et_use_stream(0, nullptr);
  return 0;
}

long long counter(const char* name) {
  uint64_t value = 0;
  if (trt_et_counter(name, &value) != 0) bench::die(std::string("no counter ") + name);
  return static_cast<long long>(value);
}

long long used_bytes(cuda::Api& api) {
  if (api.simulated()) return counter("live_bytes");
  size_t available = 0;
  check(api.free_memory(&available), "asking for free memory");
  return -static_cast<long long>(available);
}

std::vector<bench::LoadedMethod::Input> read_inputs(const std::vector<std::string>& words) {
  std::vector<bench::LoadedMethod::Input> inputs;
  for (const std::string& word : words) {
    const size_t colon = word.rfind(':');
    std::ifstream file(word.substr(0, colon), std::ios::binary);
    if (colon == std::string::npos || !file) bench::die(word + " is not FILE:SIZExSIZE");
    inputs.push_back({{}, {std::istreambuf_iterator<char>(file), {}}});
    std::istringstream sizes(word.substr(colon + 1));
    for (std::string size; std::getline(sizes, size, 'x');) {
      inputs.back().sizes.push_back(std::stoi(size));
    }
  }
  return inputs;
}

void write_file(const std::string& path, const void* data, size_t bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  if (!file.flush()) bench::die(path + " cannot be written");
}

// The quantile of sorted values, by the nearest rank.
double quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

void print_quantiles(const std::string& name, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  print(name + "_p50", {quantile(values, 0.5)});
  print(name + "_p99", {quantile(values, 0.99)});
}

int time_calls(const std::string& program, int rounds, const std::string& outputs,
               const std::vector<std::string>& files) {
  cuda::Api& api = cuda0();
  cuda::Stream stream = nullptr;
  check(api.create_stream(cuda::StreamKind::non_blocking, &stream), "making a stream");
  if (trt_et_use_stream(0, stream) != 0) bench::die("using a stream");
  const auto inputs = read_inputs(files);
  const auto wait = [&] { check(api.synchronize_stream(stream), "waiting"); };
  const long long before = used_bytes(api);
  auto start = Clock::now();
  bench::LoadedMethod method(program);
  method.bind_on_device(inputs);
  method.execute();
  wait();
  print("load_us", {microseconds_since(start)});
  for (int i = 0; i < kWarmUp; ++i) method.execute(), wait();  // The delegate records its graph.
  std::printf("bytes %lld\n", used_bytes(api) - before);
  std::vector<double> queued, done;
  for (int round = 0; round < rounds; ++round) {
    start = Clock::now();
    method.execute();
    queued.push_back(microseconds_since(start));
    wait();
    done.push_back(microseconds_since(start));
  }
  print_quantiles("queued_us", queued);
  print_quantiles("done_us", done);
  std::vector<std::pair<void*, size_t>> found;
  for (size_t i = 0; i < method.method().outputs_size(); ++i) {
    const auto& tensor = method.method().get_output(i).toTensor();
    found.emplace_back(tensor.mutable_data_ptr(), tensor.nbytes());
    const std::string ones(tensor.nbytes(), '\xff');
    check(
        api.copy(found[i].first, ones.data(), ones.size(), cuda::CopyKind::host_to_device, stream),
        "filling an output");
    wait();
  }
  method.execute();
  for (size_t i = 0; i < found.size(); ++i) {
    std::string bytes(found[i].second, 0);
    check(api.copy(bytes.data(), found[i].first, bytes.size(), cuda::CopyKind::device_to_host,
                   stream),
          "reading an output");
    wait();
    write_file(outputs + "-" + std::to_string(i) + ".bin", bytes.data(), bytes.size());
  }
  (void)trt_et_use_stream(0, nullptr);
  return 0;
}

int count_bytes(const std::string& program, int count) {
  cuda::Api* api = nullptr;
  check(cuda::access(&api), "CUDA");
  cuda::Entered entered;
  check(api->enter_device(0, &entered), "choosing cuda:0");
  std::deque<bench::LoadedMethod> methods;
  const auto run_another = [&] {
    methods.emplace_back(program).bind(true);
    methods.back().execute();
    check(api->synchronize_stream(cuda::kLegacyStream), "the run");
  };
  run_another();
  methods.clear();
  const long long before = used_bytes(*api);
  for (int i = 1; i <= count; ++i) {
    run_another();
    std::printf("bytes_of_%d %lld\n", i, used_bytes(*api) - before);
  }
  std::printf("engines %lld\n", counter("engines"));
  methods.clear();
  const long long loaded_once = used_bytes(*api);
  for (int i = 0; i < kLoads; ++i) run_another(), methods.clear();
  std::printf("bytes_left_by_loads %lld\n", used_bytes(*api) - loaded_once);
  return 0;
}

std::vector<IoTensor> read_tensors(const std::vector<std::string>& words) {
  std::vector<IoTensor> tensors;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) bench::die(word + " is not TENSOR=BYTES");
    tensors.push_back({word.substr(0, equals), std::stoull(word.substr(equals + 1))});
  }
  return tensors;
}

// Runs any program with its inputs and outputs on the host, on several sets of inputs one after the
// other: OUTPUTS-SET-0.bin and so on. The outputs are filled with ones before each run.
int write_outputs(const std::string& program, const std::string& outputs,
                  const std::vector<std::string>& files) {
  bench::LoadedMethod method(program);
  const auto inputs = read_inputs(files);
  const size_t count = std::max<size_t>(method.method().inputs_size(), 1);
  if (inputs.empty() || inputs.size() % count != 0) bench::die("inputs that are no whole sets");
  method.bind(false);
  for (size_t set = 0; set * count < inputs.size(); ++set) {
    for (size_t i = 0; i < method.method().outputs_size(); ++i) {
      const auto& tensor = method.method().get_output(i).toTensor();
      std::memset(tensor.mutable_data_ptr(), 0xff, tensor.nbytes());
    }
    for (size_t i = 0; i < count; ++i) method.set_input(i, inputs[set * count + i]);
    method.execute();
    for (size_t i = 0; i < method.method().outputs_size(); ++i) {
      const auto& tensor = method.method().get_output(i).toTensor();
      write_file(outputs + "-" + std::to_string(set) + "-" + std::to_string(i) + ".bin",
                 tensor.const_data_ptr(), tensor.nbytes());
    }
  }
  return 0;
}

}  // namespace
}  // namespace trt_et::gpu_check

int main(int argc, char** argv) {
  namespace check = trt_et::gpu_check;
  executorch::runtime::runtime_init();
  const std::string what = argc > 2 ? argv[1] : "";
  const auto number = [&](int index) { return std::max(1, std::atoi(argv[index])); };
  const auto tensors = [&](int first) { return check::read_tensors({argv + first, argv + argc}); };
  if (what == "costs" && argc > 6) {
    return check::run(argv[2], argv[3], argv[4], number(5), tensors(6));
  }
  if (what == "order" && argc == 4) return check::check_order(argv[2], number(3));
  if ((what == "rebind" || what == "barrier") && argc > 6) {
    // The provider starts TensorRT, and attaches a fake one to the simulated GPUs.
    trt_et::bench::LoadedMethod method(argv[2]);
    const auto check_rule = what == "rebind" ? check::check_rebinding : check::check_barrier;
    return check_rule(argv[3], argv[4], number(5), tensors(6));
  }
  if (what == "static" && argc == 3) return check::leave_to_static_objects(argv[2]);
  if (what == "contexts" && argc == 3) return check::list_primary_contexts(argv[2]);
  if (what == "caller" && argc == 5) return check::check_caller(argv[2], argv[3], number(4));
  if (what == "outputs" && argc > 4) {
    return check::write_outputs(argv[2], argv[3], {argv + 4, argv + argc});
  }
  if (what == "times" && argc > 5) {
    return check::time_calls(argv[2], number(3), argv[4], {argv + 5, argv + argc});
  }
  if (what == "memory" && argc == 4) return check::count_bytes(argv[2], number(3));
  trt_et::bench::die("see the head of gpu_probe.cpp");
}
