// The delegate with the real provider, compiled against the fake TensorRT, on simulated GPUs.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "heap_count.h"
#include "provider_support.h"
#include "tests.h"

using namespace trt_et;
using executorch::runtime::Span;

namespace {

void test_steady_state() {
  const auto delegate = load(doubling_blob());
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
  const auto delegate = load(doubling_blob());
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
  const auto delegate = load(doubling_blob(), options);
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
                                       kDoublingPlan + "plain\n", "", true, true),
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
  const auto delegate = load(doubling_blob(), options);
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
  const auto delegate = load(doubling_blob(), options);
  Device in(16, 0, 3.0F), out(16, 0, 0.0F);
  OwnedTensor x({2, 8}, in.data), y({2, 8}, out.data);
  const Counts before = stats();
  for (int i = 0; i < 4; ++i) CHECK_OK(call(*delegate, {&x.value, &y.value}));
  CHECK(stats().copies_peer - before.copies_peer == 8);
  CHECK(stats().synchronizations == before.synchronizations);
  CHECK(out.read(9) == 6.0F);
  options.device = 2;
  std::unique_ptr<Delegate> none;
  CHECK_FAILS(try_load(doubling_blob(), &none, options), "cuda:2 but this machine has 2 GPU(s)");
  int device = -1;
  cuda::Api* api = nullptr;
  CHECK_OK(cuda::access(&api));
  CHECK_OK(api->current_device(&device));
  CHECK(device == 0);
}

void test_sharing() {
  const Bytes blob = doubling_blob();
  const uint64_t bytes = stats().live_bytes[0], loads = counter("engine_loads");
  std::vector<std::unique_ptr<Delegate>> delegates;
  for (int i = 0; i < 5; ++i) delegates.push_back(load(blob));
  CHECK(counter("engines") == 1 && counter("engine_loads") == loads + 1);
  CHECK(stats().live_bytes[0] - bytes == 4096 + 5 * 512);
  LoadOptions elsewhere;
  elsewhere.device = 1;
  delegates.push_back(load(blob, elsewhere));
  CHECK(counter("engines") == 2);
  // Its kernels are kept elsewhere.
  LoadOptions without_cache;
  without_cache.runtime_cache = "off";
  delegates.push_back(load(blob, without_cache));
  CHECK(counter("engines") == 3);
  delegates.clear();
  CHECK(counter("engines") == 0 && stats().live_bytes[0] == bytes);
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

}  // namespace

void test_tensorrt_provider() {
  CHECK(setenv("TRT_ET_PROVIDER_PATH", TRT_ET_FAKE_FOLDER, 1) == 0);
  std::unique_ptr<Delegate> none;
  CHECK_FAILS(try_load(doubling_blob(), &none), "cannot run on simulated GPUs");
  CHECK(setenv("TRT_ET_TENSORRT_LIBRARY", TRT_ET_FAKE_LIBRARY, 1) == 0);
  test_steady_state();
  test_host_io();
  test_graphs_off();
  test_uncapturable();
  test_misaligned(true);
  test_misaligned(false);
  test_other_gpu();
  test_sharing();
  test_provider_shapes();
  test_state();
  test_two_outputs();
  test_provider_streams_and_scratch();
  test_provider_endurance();
  const Counts end = stats();
  CHECK(end.live_bytes[0] == 0 && end.live_bytes[1] == 0 && counter("engines") == 0);
}
