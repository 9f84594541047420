// The delegate with the real provider, compiled against the fake TensorRT, on simulated GPUs.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/compatibility.h"
#include "heap_count.h"
#include "provider_support.h"
#include "tests.h"

using namespace trt_et;
using executorch::runtime::Span;

// In place of ExecuTorch's CUDA extension, which is found by this name.
namespace executorch::extension::cuda {
thread_local std::optional<void*> t_caller_stream;
__attribute__((visibility("default"), used)) std::optional<void*> getCallerStream() {
  return t_caller_stream;
}
}  // namespace executorch::extension::cuda

namespace {

const std::string kDouble =
    "fake\nweights 4096\nscratch 512\ninput x float32 2,8\noutput y float32 2,8\nscale y x 2\n";

Bytes double_blob() {
  return make_blob(binding("x", "2,8", true) + "," + binding("y", "2,8", false), kDouble);
}

void test_steady_state() {
  const auto delegate = load(double_blob());
  Device in(16, 0, 3.0F), out(16, 0, 0.0F), other(16, 0, 5.0F);
  OwnedTensor x({2, 8}, in.data), y({2, 8}, out.data), z({2, 8}, other.data);
  std::vector<EValue*> values = {&x.value, &y.value};
  const Span<EValue*> arguments(values.data(), values.size());
  for (int i = 0; i < 4; ++i) CHECK_OK(delegate->execute(arguments));
  CHECK(out.read(7) == 6.0F);
  CHECK(counter("live_graphs") == 1);
  // On the device: a launch, an event, and the look at the current device. Nothing else.
  const Counts before = stats();
  const uint64_t launches = counter("graph_launches"), calls = counter("fake_calls");
  {
    const HeapCount heap;
    for (int i = 0; i < 10; ++i) CHECK_OK(delegate->execute(arguments));
    CHECK(heap.count() == 0);
  }
  Counts after = stats();
  CHECK(after.calls - before.calls == 30);
  CHECK(after.synchronizations == before.synchronizations && after.mallocs == before.mallocs);
  CHECK(counter("graph_launches") - launches == 10 && counter("fake_calls") == calls);
  // An address moves: another graph comes, and the first stays.
  values[0] = &z.value;
  const uint64_t captures = counter("captures");
  for (int i = 0; i < 4; ++i) {
    CHECK_OK(delegate->execute(arguments));
    CHECK(counter("live_graphs") == (i < 2 ? 1u : 2u));
  }
  CHECK(counter("captures") == captures + 1);
  CHECK(out.read(3) == 10.0F);
}

void test_host_io() {
  const auto delegate = load(double_blob());
  std::vector<float> in(16, 1.5F), out(16, 0.0F);
  OwnedTensor x({2, 8}, in.data()), y({2, 8}, out.data());
  std::vector<EValue*> values = {&x.value, &y.value};
  const Span<EValue*> arguments(values.data(), values.size());
  for (int i = 0; i < 4; ++i) CHECK_OK(delegate->execute(arguments));
  const Counts before = stats();
  in[5] = 4.0F;
  {
    const HeapCount heap;
    CHECK_OK(delegate->execute(arguments));
    CHECK(heap.count() == 0);
  }
  const Counts after = stats();
  CHECK(out[5] == 8.0F && out[4] == 3.0F);
  CHECK(after.calls - before.calls == 1 + 1 + 3);  // I + O copies + 3
  CHECK(after.synchronizations - before.synchronizations == 1);
  CHECK(after.mallocs == before.mallocs);
}

// Without graphs, by option, the engine is queued plainly each time, with nothing bound anew.
void test_graphs_off() {
  LoadOptions options;
  options.cuda_graphs = false;
  const auto delegate = load(double_blob(), options);
  Device in(16, 0, 3.0F), out(16, 0, 0.0F);
  OwnedTensor x({2, 8}, in.data), y({2, 8}, out.data);
  CHECK_OK(call(*delegate, {&x.value, &y.value}));
  const uint64_t calls = counter("fake_calls"), captures = counter("captures");
  for (int i = 0; i < 5; ++i) CHECK_OK(call(*delegate, {&x.value, &y.value}));
  CHECK(counter("fake_calls") == calls + 5 && counter("captures") == captures);
  CHECK(out.read(0) == 6.0F);
}

// An engine whose runs TensorRT-RTX does not let be captured is never asked to be.
void test_uncapturable() {
  CHECK(setenv("TRT_ET_TENSORRT_LIBRARY", TRT_ET_FAKE_RTX_LIBRARY, 1) == 0);
  LoadOptions options;
  options.runtime_cache = "off";
  const auto delegate = load(make_blob(binding("x", "2,8", true) + "," + binding("y", "2,8", false),
                                       kDouble + "plain\n", "", true, true),
                             options);
  CHECK(setenv("TRT_ET_TENSORRT_LIBRARY", TRT_ET_FAKE_LIBRARY, 1) == 0);
  Device in(16, 0, 3.0F), out(16, 0, 0.0F);
  OwnedTensor x({2, 8}, in.data), y({2, 8}, out.data);
  const uint64_t captures = counter("captures"), calls = counter("fake_calls");
  for (int i = 0; i < 6; ++i) CHECK_OK(call(*delegate, {&x.value, &y.value}));
  CHECK(counter("captures") == captures && counter("live_graphs") == 0);
  CHECK(counter("fake_calls") >= calls + 6);
  CHECK(out.read(0) == 6.0F);
}

// ExecuTorch plans at multiples of 16, TensorRT wants 256. The copies are part of the graph.
void test_misaligned(bool graphs) {
  LoadOptions options;
  options.cuda_graphs = graphs;
  const auto delegate = load(double_blob(), options);
  Device in(16, 0, 3.0F), out(16, 0, 0.0F), other(16, 0, 4.0F);
  for (Device* device : {&in, &out, &other}) device->data += 16;
  in.write();
  other.write();
  OwnedTensor x({2, 8}, in.data), y({2, 8}, out.data), z({2, 8}, other.data);
  for (int i = 0; i < 5; ++i) CHECK_OK(call(*delegate, {&x.value, &y.value}));
  const Counts before = stats();
  CHECK_OK(call(*delegate, {&x.value, &y.value}));
  const Counts after = stats();
  CHECK(after.copies_d2d - before.copies_d2d == (graphs ? 0u : 2u));
  CHECK(after.calls - before.calls == (graphs ? 3u : 5u));
  CHECK(after.synchronizations == before.synchronizations);
  CHECK(out.read(15) == 6.0F);
  // What is copied moves, what the engine is given does not.
  for (int i = 0; i < 4; ++i) CHECK_OK(call(*delegate, {&z.value, &y.value}));
  CHECK(out.read(15) == 8.0F);
  CHECK_OK(call(*delegate, {&x.value, &z.value}));
  CHECK(out.read(15) == 8.0F && other.read(15) == 6.0F);
}

void test_other_gpu() {
  LoadOptions options;
  options.device = 1;
  const auto delegate = load(double_blob(), options);
  Device in(16, 0, 3.0F), out(16, 0, 0.0F);
  OwnedTensor x({2, 8}, in.data), y({2, 8}, out.data);
  const Counts before = stats();
  for (int i = 0; i < 4; ++i) CHECK_OK(call(*delegate, {&x.value, &y.value}));
  CHECK(stats().copies_peer - before.copies_peer == 8);
  CHECK(stats().synchronizations == before.synchronizations);
  CHECK(out.read(9) == 6.0F);
  options.device = 2;
  std::unique_ptr<Delegate> none;
  CHECK_FAILS(try_load(double_blob(), &none, options), "cuda:2 but this machine has 2 GPU(s)");
  int device = -1;
  cuda::Api* api = nullptr;
  CHECK_OK(cuda::access(&api));
  CHECK_OK(api->current_device(&device));
  CHECK(device == 0);
}

void test_sharing() {
  const Bytes blob = double_blob();
  const uint64_t bytes = stats().live_bytes[0], loads = counter("engine_loads");
  std::vector<std::unique_ptr<Delegate>> delegates;
  for (int i = 0; i < 5; ++i) delegates.push_back(load(blob));
  CHECK(counter("engines") == 1 && counter("engine_loads") == loads + 1);
  CHECK(stats().live_bytes[0] - bytes == 4096 + 5 * 512);
  LoadOptions elsewhere;
  elsewhere.device = 1;
  delegates.push_back(load(blob, elsewhere));
  CHECK(counter("engines") == 2);
  delegates.clear();
  CHECK(counter("engines") == 0 && stats().live_bytes[0] == bytes);
}

const std::string kProfiles =
    "fake\ninput x float32 -1,4\noutput y float32 -1,4\n"
    "profile\nrange x 1,4 1,4 2,4\nprofile\nrange x 4,4 8,4 16,4\nshift y x 1\n";

void test_profiles(bool ours) {
  const std::string range = ",\"min_shape\":[1,4],\"opt_shape\":[8,4],\"max_shape\":[16,4]";
  const Bytes blob =
      ours ? make_blob(binding("x", "-1,4", true, range) + "," + binding("y", "-1,4", false, range),
                       kProfiles)
           : make_blob(foreign("x", true) + "," + foreign("y", false), kProfiles, "", false);
  const auto delegate = load(blob);
  std::vector<float> in(80, 1.0F), out(80, 0.0F);
  for (const int32_t batch : {1, 2, 16, 4, 1, 1, 1, 1, 8}) {
    OwnedTensor x({batch, 4}, in.data()), y({20, 4}, out.data());
    std::fill(out.begin(), out.end(), 0.0F);
    CHECK_OK(call(*delegate, {&x.value, &y.value}));
    CHECK(y.value.toTensor().size(0) == batch);
    CHECK(out[static_cast<size_t>(batch) * 4 - 1] == 2.0F);
    CHECK(out[static_cast<size_t>(batch) * 4] == 0.0F);
  }
  OwnedTensor between({3, 4}, in.data()), large({17, 4}, in.data()), y({20, 4}, out.data());
  const Counts before = stats();
  CHECK_FAILS(call(*delegate, {&between.value, &y.value}), "optimization profiles takes x[3, 4]");
  CHECK(stats().launches == before.launches && stats().copies_h2d == before.copies_h2d);
  CHECK_FAILS(call(*delegate, {&large.value, &y.value}), "[17, 4], expected [1, 4] to [16, 4]");
  OwnedTensor x({4, 4}, in.data());
  CHECK_OK(call(*delegate, {&x.value, &y.value}));
}

void test_aliases() {
  // Upstream's TR02: an output in the memory of an input. The engine of a KV cache.
  const std::string plan =
      "fake\ninput new float32 4\ninput cache float32 4\n"
      "output out float32 4\noutput next float32 4\nalias next cache\n"
      "sum next cache new\nscale out next 10\n";
  const Bytes blob =
      make_blob(foreign("new", true) + "," + foreign("cache", true) + "," + foreign("out", false) +
                    "," + foreign("next", false),
                plan, ",\"aliased_io\":[{\"output\":\"next\",\"input\":\"cache\"}]", false);
  const auto delegate = load(blob);
  Device fresh(4, 0, 1.0F), cache(4, 0, 0.0F), out(4, 0, 0.0F), next(4, 0, 0.0F);
  OwnedTensor a({4}, fresh.data), b({4}, cache.data), c({4}, out.data), d({4}, next.data);
  // The output is the cache itself, then memory of its own, which gets a copy.
  for (int i = 0; i < 4; ++i) CHECK_OK(call(*delegate, {&a.value, &b.value, &c.value, &b.value}));
  CHECK(cache.read(2) == 4.0F && out.read(2) == 40.0F);
  CHECK_OK(call(*delegate, {&a.value, &b.value, &c.value, &d.value}));
  CHECK(next.read(1) == 5.0F && cache.read(1) == 5.0F);
  std::vector<float> host_cache(4, 7.0F), host_next(4, 0.0F);
  OwnedTensor e({4}, host_cache.data()), f({4}, host_next.data());
  CHECK_OK(call(*delegate, {&a.value, &e.value, &c.value, &f.value}));
  CHECK(host_next[0] == 8.0F);
}

void test_shapes_of_all_kinds() {
  // 0-d to ExecuTorch and [1] to the engine, and nothing at all.
  const auto scalar =
      load(make_blob(foreign("x", true) + "," + foreign("y", false),
                     "fake\ninput x float32 1\noutput y float32 1\nscale y x 2\n", "", false));
  float in = 4.0F, out = 0.0F;
  OwnedTensor x({}, &in), y({}, &out);
  CHECK_OK(call(*scalar, {&x.value, &y.value}));
  CHECK(out == 8.0F && y.value.toTensor().dim() == 0);
  const auto zero_d = load(make_blob(binding("x", "", true) + "," + binding("y", "", false),
                                     "fake\ninput x float32 -\noutput y float32 -\nshift y x 1\n"));
  CHECK_OK(call(*zero_d, {&x.value, &y.value}));
  CHECK(out == 5.0F);
  const auto empty = load(make_blob(binding("x", "0,3", true) + "," + binding("y", "0,3", false),
                                    "fake\ninput x float32 0,3\noutput y float32 0,3\nrelu y x\n"));
  OwnedTensor nothing({0, 3}, nullptr), no_result({0, 3}, nullptr);
  CHECK_OK(call(*empty, {&nothing.value, &no_result.value}));
  // The shape is known after the run.
  const std::string range = ",\"min_shape\":[1],\"opt_shape\":[4],\"max_shape\":[6]";
  const auto late = load(make_blob(
      binding("x", "-1", true, range) + "," + binding("y", "-1", false, range),
      "fake\ninput x float32 -1\noutput y float32 -1\nlate y\nrange x 1 4 6\nscale y x 3\n"));
  std::vector<float> from(6, 2.0F), to(6, 0.0F);
  for (const int32_t size : {6, 3, 3, 5}) {
    OwnedTensor a({size}, from.data()), b({6}, to.data());
    std::fill(to.begin(), to.end(), 0.0F);
    CHECK_OK(call(*late, {&a.value, &b.value}));
    CHECK(b.value.toTensor().size(0) == size && to[static_cast<size_t>(size) - 1] == 6.0F);
  }
}

void test_refusals() {
  std::unique_ptr<Delegate> none;
  const std::string io = binding("x", "2,8", true) + "," + binding("y", "2,8", false);
  CHECK_FAILS(try_load(make_blob(io, "not an engine"), &none), "TensorRT 11.7.3 refuses");
  CHECK_FAILS(
      try_load(make_blob(foreign("x", true) + "," + foreign("z", false), kDouble, "", false),
               &none),
      "engine has no output 'z'");
  CHECK_FAILS(try_load(make_blob(foreign("x", true), kDouble, "", false), &none),
              "engine has 2 inputs and outputs, its blob names 1");
  CHECK_FAILS(
      try_load(make_blob(binding("x", "2,9", true) + "," + binding("y", "2,8", false), kDouble),
               &none),
      "disagree on 'x', which is [2, 8]");
  CHECK_FAILS(try_load(make_blob(foreign("x", true) + "," + foreign("y", false),
                                 "fake\ninput x fp8 2\noutput y float32 2\nrelu y x\n", "", false),
                       &none),
              "a dtype that ExecuTorch does not have");
  CHECK_FAILS(
      try_load(make_blob(io, kDouble,
                         ",\"compute_capabilities\":[\"9.0\"],\"gpu_name\":\"NVIDIA H200\""),
               &none),
      "for compute capability 9.0 (NVIDIA H200), but cuda:0 is 0.0 (simulated GPU)");
  // An RTX engine that names its targets runs on those only; the name of its GPU says nothing.
  cuda::Api* api = nullptr;
  CHECK_OK(cuda::access(&api));
  Blob rtx;
  rtx.metadata.builder = "tensorrt_rtx";
  rtx.metadata.hardware_compatible = true;
  CHECK_OK(check_compatibility(*api, rtx, 0));
  rtx.metadata.compute_capabilities = {"8.6", "9.0"};
  CHECK_FAILS(check_compatibility(*api, rtx, 0),
              "for compute capability 8.6, 9.0 (any GPU), but cuda:0 is 0.0");
  rtx.metadata.compute_capabilities = {"8.6", "0.0"};
  CHECK_OK(check_compatibility(*api, rtx, 0));
  LoadOptions options;
  options.weight_streaming_budget = 5000;
  CHECK_FAILS(try_load(make_blob(binding("x", "2,8", true) + "," + binding("y", "2,8", false),
                                 kDouble + "streamable 4096\n"),
                       &none, options),
              "refuses weight_streaming_budget 5000");
  options.weight_streaming_budget = -1;
  CHECK_OK(try_load(double_blob(), &none, options));
}

// Two engines of a method take turns in one scratch memory, of the larger one's size.
void test_shared_device_memory() {
  const int method = 0;
  LoadOptions options;
  options.shared_device_memory = true;
  options.method = &method;
  const std::string large =
      "fake\nscratch 2048\ninput x float32 2,8\noutput y float32 2,8\nshift y x 1\n";
  const std::string io = binding("x", "2,8", true) + "," + binding("y", "2,8", false);
  const uint64_t bytes = stats().live_bytes[0];
  {
    const auto first = load(double_blob(), options);
    Device in(16, 0, 3.0F), middle(16, 0, 0.0F), out(16, 0, 0.0F);
    OwnedTensor x({2, 8}, in.data), y({2, 8}, middle.data), z({2, 8}, out.data);
    for (int i = 0; i < 4; ++i) CHECK_OK(call(*first, {&x.value, &y.value}));
    const uint64_t before = stats().live_bytes[0];
    const auto second = load(make_blob(io, large), options);  // The memory moves.
    CHECK(stats().live_bytes[0] - before == 2048 - 512 + 1);
    for (int i = 0; i < 5; ++i) {
      CHECK_OK(call(*first, {&x.value, &y.value}));
      CHECK_OK(call(*second, {&y.value, &z.value}));
    }
    CHECK(counter("live_graphs") == 2);
    std::thread([&] {
      CHECK_OK(call(*first, {&x.value, &y.value}));
      CHECK_OK(call(*second, {&y.value, &z.value}));
      CHECK(out.read(6) == 7.0F);
    }).join();
    CHECK_OK(call(*second, {&x.value, &z.value}));
    CHECK(out.read(6) == 4.0F);
  }
  CHECK(stats().live_bytes[0] == bytes);
}

void test_one_stream_of_the_caller() {
  const auto delegate = load(double_blob());
  Device in(16, 0, 3.0F), out(16, 0, 0.0F);
  OwnedTensor x({2, 8}, in.data), y({2, 8}, out.data);
  cuda::Api* api = nullptr;
  CHECK_OK(cuda::access(&api));
  CHECK_OK(call(*delegate, {&x.value, &y.value}));
  cuda::Stream stream = nullptr;
  CHECK_OK(api->create_stream(cuda::StreamKind::non_blocking, &stream));
  CHECK(trt_et_use_stream(0, stream) == 0);
  CHECK(trt_et_use_stream(2, stream) == -1);
  CHECK_OK(call(*delegate, {&x.value, &y.value}));
  CHECK_OK(api->synchronize_stream(stream));
  CHECK(reinterpret_cast<float*>(out.data)[3] == 6.0F);
  CHECK(trt_et_use_stream(0, nullptr) == 0);
  CHECK_OK(call(*delegate, {&x.value, &y.value}));
  CHECK_OK(api->synchronize_stream(stream));
  CHECK(out.read(3) == 6.0F);
  // ExecuTorch's guard, for streams of this GPU only.
  executorch::extension::cuda::t_caller_stream = stream;
  in.values.assign(16, 4.0F);
  in.write();
  CHECK_OK(call(*delegate, {&x.value, &y.value}));
  CHECK_OK(api->synchronize_stream(stream));
  CHECK(reinterpret_cast<float*>(out.data)[3] == 8.0F);
  CHECK_OK(api->set_device(1));
  cuda::Stream foreign = nullptr;
  CHECK_OK(api->create_stream(cuda::StreamKind::non_blocking, &foreign));
  CHECK_OK(api->set_device(0));
  executorch::extension::cuda::t_caller_stream = foreign;
  CHECK_OK(call(*delegate, {&x.value, &y.value}));
  executorch::extension::cuda::t_caller_stream = std::nullopt;
  CHECK(out.read(3) == 8.0F);
  CHECK_OK(api->destroy_stream(foreign));
  CHECK_OK(api->destroy_stream(stream));
}

// Several outputs on the host: one wait.
void test_two_outputs() {
  const auto delegate = load(make_blob(
      foreign("x", true) + "," + foreign("y", false) + "," + foreign("z", false),
      "fake\ninput x float32 4\noutput y float32 4\noutput z float32 4\nscale y x 2\nshift z x 1\n",
      "", false));
  std::vector<float> in(4, 3.0F), first(4), second(4);
  OwnedTensor x({4}, in.data()), y({4}, first.data()), z({4}, second.data());
  for (int i = 0; i < 4; ++i) {
    const Counts before = stats();
    CHECK_OK(call(*delegate, {&x.value, &y.value, &z.value}));
    CHECK(stats().synchronizations - before.synchronizations == 1);
    CHECK(first[3] == 6.0F && second[3] == 4.0F);
  }
}

// Every call of CUDA and TensorRT fails in turn, in load, call, capture, change and unload.
void test_faults(const LoadOptions& options) {
  const Bytes blob = double_blob();
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
  const Bytes blob = double_blob();
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
  const Bytes blob = double_blob();
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

void test_tensorrt_provider() {
  CHECK(setenv("TRT_ET_PROVIDER_PATH", TRT_ET_FAKE_FOLDER, 1) == 0);
  std::unique_ptr<Delegate> none;
  CHECK_FAILS(try_load(double_blob(), &none), "cannot run on simulated GPUs");
  CHECK(setenv("TRT_ET_TENSORRT_LIBRARY", TRT_ET_FAKE_LIBRARY, 1) == 0);
  test_steady_state();
  test_host_io();
  test_graphs_off();
  test_uncapturable();
  test_misaligned(true);
  test_misaligned(false);
  test_other_gpu();
  test_sharing();
  test_profiles(true);
  test_profiles(false);
  test_aliases();
  test_state();
  test_shapes_of_all_kinds();
  test_refusals();
  test_shared_device_memory();
  test_two_outputs();
  test_one_stream_of_the_caller();
  test_faults({});
  LoadOptions scratch;
  scratch.shared_device_memory = true;
  test_faults(scratch);
  test_cycles();
  test_threads();
  const Counts end = stats();
  CHECK(end.live_bytes[0] == 0 && end.live_bytes[1] == 0 && counter("engines") == 0);
}
