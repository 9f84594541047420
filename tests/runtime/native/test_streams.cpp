// Runs of a delegate beside other code of the process that uses CUDA: whoever reads next sees the
// result, and whoever writes next does not overtake it.
#include <chrono>
#include <functional>
#include <future>
#include <list>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "backend_calls.h"
#include "cuda/device_allocator.h"
#include "delegate/contexts.h"
#include "simulated_api.h"
#include "tests.h"

using namespace trt_et;
using cuda::Stream;
using executorch::extension::cuda::t_caller_stream;

namespace {

// Adds a number to its state, in place.
struct Sum {
  Sum() : delegate(load(sum_blob())) {}
  void run() { CHECK_OK(call(*delegate, {&x.value, &y.value, &y.value})); }

  std::unique_ptr<Delegate> delegate;
  Device one{8, 0, 1.0F}, state{8, 0, 0.0F};
  OwnedTensor x{{8}, one.data}, y{{8}, state.data};
};

void test_stock_allocator(bool graphs) {
  LoadOptions options;
  options.cuda_graphs = graphs;
  Scaling scaling(options);
  StockAllocator stock;
  scaling.in.allocator = scaling.out.allocator = &stock;
  for (int i = 1; i <= 6; ++i) {
    const auto value = static_cast<float>(i);
    scaling.in.fill(value);
    CHECK_OK(scaling.run());
    scaling.in.fill(-1.0F);  // Must not overtake the run.
    CHECK(scaling.out.read(5) == 2 * value);
  }
  CHECK(counter("live_graphs") == (graphs ? 1u : 0u));
}

// The same with all of a program's copies on the stream that its caller chose.
void test_caller_stream(Stream stream) {
  t_caller_stream = stream;
  WorkStream found;
  CHECK_OK(thread_stream(api(), 0, &found));
  CHECK(found.handle == (stream == nullptr ? cuda::kLegacyStream : stream));
  test_stock_allocator(true);
  t_caller_stream = std::nullopt;
}

// A guard's stream of another GPU is not used.
void test_a_guards_stream_of_another_gpu() {
  Stream foreign = nullptr;
  CHECK_OK(cuda::simulated_api()->set_device(1));
  CHECK_OK(api().create_stream(cuda::StreamKind::non_blocking, &foreign));
  CHECK_OK(cuda::simulated_api()->set_device(0));
  Scaling scaling;
  t_caller_stream = foreign;
  CHECK_OK(scaling.run());
  t_caller_stream = std::nullopt;
  CHECK(scaling.out.read(3) == 6.0F);
  CHECK_OK(api().destroy_stream(foreign));
}

// Other code writes the input and reads the output on a blocking stream. Later runs take so many
// calls of CUDA.
void check_order_with(Stream theirs, uint64_t calls) {
  Scaling scaling;
  auto* in = reinterpret_cast<float*>(scaling.in.data);
  const auto* out = reinterpret_cast<const float*>(scaling.out.data);
  const auto queue = [&](std::function<Status()> work) {
    CHECK_OK(cuda::simulated_api()->launch(theirs, std::move(work)));
  };
  for (int i = 1; i <= 5; ++i) {
    const auto value = static_cast<float>(i);
    float seen = 0.0F;
    queue([=] { return in[2] = value, Status{}; });
    const Counts before = stats();
    CHECK_OK(scaling.run());
    if (i > 3) CHECK(stats().calls - before.calls == calls);
    queue([=, &seen] { return seen = out[2], Status{}; });
    queue([=] { return in[2] = -1.0F, Status{}; });
    CHECK_OK(api().synchronize_stream(theirs));
    CHECK(seen == 2 * value);
  }
}

// A copy from the host may read it when the call is long over.
void test_host_memory_is_free_after_a_call() {
  Scaling scaling;
  std::vector<float> host(16);
  OwnedTensor x({2, 8}, host.data());
  for (int i = 0; i < 5; ++i) {
    host.assign(16, 3.0F);
    CHECK_OK(call(*scaling.delegate, {&x.value, &scaling.y.value}));
    host.assign(16, -1.0F);
    CHECK(scaling.out.read(4) == 6.0F);
  }
  host.assign(16, 4.0F);
  CHECK(cuda_allocator().copy_host_to_device(scaling.in.data, host.data(), 64, 0) == Error::Ok);
  host.assign(16, -1.0F);
  CHECK(scaling.in.read(7) == 4.0F);
}

// The next stream may have the handle of one that is gone, with a run still going on.
void test_handles_are_used_again() {
  Sum sum;
  Stream stream = nullptr, again = nullptr;
  CHECK_OK(api().create_stream(cuda::StreamKind::non_blocking, &stream));
  CHECK(trt_et_use_stream(0, stream) == 0 && trt_et_use_stream(2, stream) == -1);
  sum.run();
  CHECK_OK(api().destroy_stream(stream));
  CHECK_OK(api().create_stream(cuda::StreamKind::non_blocking, &again));
  CHECK(again == stream);
  CHECK(trt_et_use_stream(0, again) == 0);
  sum.run();
  CHECK_OK(api().synchronize_stream(again));
  CHECK(reinterpret_cast<float*>(sum.state.data)[1] == 2.0F);
  CHECK(trt_et_use_stream(0, nullptr) == 0);
  CHECK_OK(api().destroy_stream(again));
}

// The last run was on a stream that is gone, and may not be over.
void test_a_capture_on_a_handle_that_is_used_again() {
  Scaling scaling;
  Stream stream = nullptr, again = nullptr;
  cuda::Graph graph = nullptr;
  CHECK_OK(api().create_stream(cuda::StreamKind::non_blocking, &stream));
  CHECK(trt_et_use_stream(0, stream) == 0);
  for (int i = 0; i < 2; ++i) CHECK_OK(scaling.run());
  CHECK_OK(api().destroy_stream(stream));
  CHECK_OK(api().create_stream(cuda::StreamKind::non_blocking, &again));
  CHECK(again == stream && trt_et_use_stream(0, again) == 0);
  CHECK_OK(api().begin_capture(again));
  CHECK_FAILS(scaling.run(), "the last run was on another");
  CHECK_OK(api().end_capture(again, &graph));
  CHECK_OK(api().destroy_graph(graph));
  CHECK(trt_et_use_stream(0, nullptr) == 0);
  CHECK_OK(api().destroy_stream(again));
}

// Each capture with new tensors takes a context for good: not without an end.
void test_captures_take_a_limited_number_of_contexts() {
  Scaling scaling;
  Stream stream = nullptr;
  size_t captured = 0;
  CHECK_OK(api().create_stream(cuda::StreamKind::non_blocking, &stream));
  CHECK(trt_et_use_stream(0, stream) == 0);
  std::list<Device> outputs;
  std::vector<cuda::Graph> graphs;
  Status status;
  for (; status.ok() && captured < 200; ++captured) {
    const Device& out = outputs.emplace_back(size_t{16}, 0, 0.0F);
    OwnedTensor y({2, 8}, out.data);
    for (int i = 0; i < 2; ++i) CHECK_OK(call(*scaling.delegate, {&scaling.x.value, &y.value}));
    CHECK_OK(api().begin_capture(stream));
    status = call(*scaling.delegate, {&scaling.x.value, &y.value});
    CHECK_OK(api().end_capture(stream, &graphs.emplace_back()));
  }
  CHECK_FAILS(status, "graphs hold all contexts that a method gives to them");
  CHECK(captured == 64 + 1);
  for (const cuda::Graph graph : graphs) CHECK_OK(api().destroy_graph(graph));
  CHECK(trt_et_use_stream(0, nullptr) == 0);
  CHECK_OK(api().destroy_stream(stream));
}

// Of all shapes that come often, the graph's is the last to be given up.
void test_a_captured_context_keeps_its_shapes() {
  const Bytes blob =
      unary_blob("-1", "weights 64\nrange x 1 8 16\nscale y x 2\n", range("1", "8", "16"));
  const auto delegate = load(blob);
  Device in(16, 0, 3.0F), out(16, 0, 0.0F);
  Stream stream = nullptr;
  CHECK_OK(api().create_stream(cuda::StreamKind::non_blocking, &stream));
  CHECK(trt_et_use_stream(0, stream) == 0);
  const auto run = [&](int32_t length) {
    OwnedTensor x({length}, in.data), y({16}, out.data);
    return call(*delegate, {&x.value, &y.value});
  };
  const auto capture = [&] {
    cuda::Graph graph = nullptr;
    CHECK_OK(api().begin_capture(stream));
    CHECK_OK(run(1));
    CHECK_OK(api().end_capture(stream, &graph));
    CHECK_OK(api().destroy_graph(graph));
  };
  for (int i = 0; i < 2; ++i) CHECK_OK(run(1));
  capture();
  for (int i = 0; i < 8; ++i) CHECK_OK(run(2 + i % 2));
  for (const int32_t length : {1, 4}) CHECK_OK(run(length));
  capture();
  CHECK(trt_et_use_stream(0, nullptr) == 0);
  CHECK_OK(api().destroy_stream(stream));
}

// A method that is described while it runs is waited for; others are loaded and run meanwhile.
void test_a_description_holds_up_no_other_method() {
  std::promise<void> end, queued;
  const auto ended = end.get_future().share();
  const auto busy = load(scale_blob("8"));
  std::thread runs([&] {
    float in[8] = {}, out[8] = {};
    OwnedTensor x({8}, in), y({8}, out);
    Stream stream = nullptr;
    CHECK(trt_et_get_stream(0, &stream) == 0);
    CHECK_OK(cuda::simulated_api()->launch(stream, [ended] { return ended.wait(), Status{}; }));
    queued.set_value();
    CHECK_OK(call(*busy, {&x.value, &y.value}));
  });
  queued.get_future().wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::thread describes([] {
    std::vector<char> text(4096);
    CHECK(trt_et_describe_engines(text.data(), text.size()) > 2);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto other = load(doubling_blob());
  check_call(*other, 1.0F, 2.0F);
  end.set_value();
  runs.join();
  describes.join();
}

void test_streams_of_threads_that_have_ended_are_forgotten() {
  const auto delegate = load(scale_blob("8"));
  for (int i = 0; i < 100; ++i) {
    std::thread([&] {
      float in[8] = {}, out[8] = {};
      OwnedTensor x({8}, in), y({8}, out);
      CHECK_OK(call(*delegate, {&x.value, &y.value}));
      if (i % 2 == 0) return;
      CHECK(trt_et_use_stream(0, cuda::kPerThreadStream) == 0);
      CHECK_OK(call(*delegate, {&x.value, &y.value}));
    }).join();
  }
  CHECK(counter("kept_streams") < 10);
}

// One handle, and another stream in each thread.
void test_per_thread_default_stream() {
  Sum sum;
  for (const float expected : {1.0F, 2.0F}) {
    std::thread([&] {
      CHECK(trt_et_use_stream(0, cuda::kPerThreadStream) == 0);
      sum.run();
      if (expected == 1.0F) return;
      CHECK_OK(api().synchronize_stream(cuda::kPerThreadStream));
      CHECK(reinterpret_cast<float*>(sum.state.data)[1] == expected);
    }).join();
  }
}

// While one thread captures, another copies, frees, waits and uses the legacy stream.
void test_captures_are_left_alone() {
  WorkStream stream;
  CHECK_OK(thread_stream(api(), 0, &stream));
  int runs = 0, queued = 0;
  const auto other_thread = [] {
    StockAllocator stock;
    Device memory(8, 0, 1.0F);
    const auto ours = std::exchange(memory.allocator, &stock);
    memory.fill(7.0F);
    CHECK(memory.read(0) == 7.0F);
    memory.allocator = ours;
    CHECK(memory.read(0) == 7.0F);
  };
  const uint64_t captures = counter("captures");
  GraphReplay replay(
      api(), true, [](Stream) { return Status{}; },
      [&](Stream on) {
        if (++queued == 2) std::thread(other_thread).join();
        return cuda::simulated_api()->launch(on, [&runs] { return ++runs, Status{}; });
      });
  for (int i = 0; i < 5; ++i) CHECK_OK(replay.run(stream.handle, true));
  CHECK_OK(api().synchronize_stream(stream.handle));
  CHECK(runs == 5 && queued == 2 && counter("captures") == captures + 1);
}

// As many calls as they take, and no more: the planned memory is known.
void test_copies_ask_once() {
  Device memory(8, 0, 1.0F);
  memory.write();
  Counts before = stats();
  memory.write();
  CHECK(stats().calls - before.calls == 3);  // The current device, the copy, the wait.
  before = stats();
  CHECK(memory.read(3) == 1.0F);
  CHECK(stats().calls - before.calls == 3);
}

// Two sets of memory in turns: one graph of memory that stays, copies beside it, and no waits.
void test_alternating_memory() {
  Scaling scale;
  Device other(16, 0, 5.0F), result(16, 0, 0.0F);
  OwnedTensor x({2, 8}, other.data), y({2, 8}, result.data);
  scale.in.fill(2.0F);
  const auto both = [&] {
    CHECK_OK(scale.run());
    CHECK_OK(call(*scale.delegate, {&x.value, &y.value}));
  };
  const Counts start = stats();
  for (int i = 0; i < 8; ++i) both();
  CHECK(stats().synchronizations == start.synchronizations);
  CHECK(counter("live_graphs") == 1);
  const Counts before = stats();
  const uint64_t captures = counter("captures"), calls = counter("fake_calls");
  for (int i = 0; i < 10; ++i) both();
  CHECK(stats().synchronizations == before.synchronizations && stats().mallocs == before.mallocs);
  CHECK(stats().calls - before.calls == 20 * 5);
  CHECK(counter("captures") == captures && counter("fake_calls") == calls);
  CHECK(scale.out.read(0) == 4.0F && result.read(0) == 10.0F);
  // What stays again is not copied any more.
  for (int i = 0; i < 60; ++i) CHECK_OK(scale.run());
  const uint64_t copies = stats().copies_d2d;
  CHECK_OK(scale.run());
  CHECK(stats().copies_d2d == copies && counter("live_graphs") == 1);
  CHECK(scale.out.read(0) == 4.0F);
}

// Calls of these lengths, `repeats` times each; returns what the whole took.
struct Costs {
  uint64_t waits, calls, captures, fake_calls;
};
Costs run_lengths(bool graphs, int first, int last, int repeats, int rounds) {
  LoadOptions options;
  options.cuda_graphs = graphs;
  const auto delegate =
      load(unary_blob("-1", "range x 1 8 64\nscale y x 2\n", range("1", "8", "64")), options);
  Device in(64, 0, 1.5F), out(64, 0, 0.0F);
  const Counts before = stats();
  const uint64_t captures = counter("captures"), fake_calls = counter("fake_calls");
  for (int round = 0; round < rounds; ++round) {
    for (int length = first; length <= last; ++length) {
      for (int i = 0; i < repeats; ++i) {
        OwnedTensor x({length}, in.data), y({64}, out.data);
        CHECK_OK(call(*delegate, {&x.value, &y.value}));
        CHECK(y.value.toTensor().size(0) == length);
      }
    }
  }
  const Counts after = stats();
  CHECK(out.read(static_cast<size_t>(last) - 1) == 3.0F);
  return {after.synchronizations - before.synchronizations, after.calls - before.calls,
          counter("captures") - captures, counter("fake_calls") - fake_calls};
}

// Nothing waits. What does not come back costs what it costs without graphs, two shapes that do
// have a context each, and graphs that do not last are given up.
void test_changing_shapes() {
  const Costs growing = run_lengths(true, 1, 64, 1, 1), plain = run_lengths(false, 1, 64, 1, 1);
  CHECK(growing.captures == 0 && growing.calls == plain.calls);
  const Costs two = run_lengths(true, 1, 2, 1, 50), two_plain = run_lengths(false, 1, 2, 1, 50);
  CHECK(two.captures == 2 && two.fake_calls < two_plain.fake_calls / 5);
  const Costs three = run_lengths(true, 1, 3, 1, 50), three_plain = run_lengths(false, 1, 3, 1, 50);
  CHECK(three.captures <= 2 && three.fake_calls <= three_plain.fake_calls);
  const Costs many = run_lengths(true, 1, 12, 4, 50), many_plain = run_lengths(false, 1, 12, 4, 50);
  CHECK(many.captures < 40 && many.fake_calls < many_plain.fake_calls + 40);
  for (const Costs& costs :
       {growing, plain, two, two_plain, three, three_plain, many, many_plain}) {
    CHECK(costs.waits == 0);
  }
}

}  // namespace

void test_streams(const std::string&) {
  test_stock_allocator(true);
  test_stock_allocator(false);
  Stream stream = nullptr;
  CHECK_OK(api().create_stream(cuda::StreamKind::non_blocking, &stream));
  for (const Stream given :
       {stream, Stream(nullptr), cuda::kLegacyStream, cuda::kPerThreadStream}) {
    test_caller_stream(given);
  }
  CHECK_OK(api().destroy_stream(stream));
  test_a_guards_stream_of_another_gpu();
  check_order_with(nullptr, 3);
  test_host_memory_is_free_after_a_call();
  test_handles_are_used_again();
  test_a_capture_on_a_handle_that_is_used_again();
  test_captures_take_a_limited_number_of_contexts();
  test_a_captured_context_keeps_its_shapes();
  test_a_description_holds_up_no_other_method();
  test_streams_of_threads_that_have_ended_are_forgotten();
  test_per_thread_default_stream();
  test_captures_are_left_alone();
  test_copies_ask_once();
  test_alternating_memory();
  test_changing_shapes();
}

// ExecuTorch's CUDA backend runs on a blocking stream of its own and does not wait. Once it is
// registered, it is for the whole process: this comes last.
namespace {

struct CudaBackend final : executorch::runtime::BackendInterface {
  bool is_available() const override { return true; }
  executorch::runtime::Result<executorch::runtime::DelegateHandle*> init(
      executorch::runtime::BackendInitContext&, executorch::runtime::FreeableBuffer*,
      executorch::runtime::ArrayRef<executorch::runtime::CompileSpec>) const override {
    return Error::NotSupported;
  }
  Error execute(executorch::runtime::BackendExecutionContext&, executorch::runtime::DelegateHandle*,
                executorch::runtime::Span<executorch::runtime::EValue*>) const override {
    return Error::NotSupported;
  }
};

}  // namespace

void test_beside_cuda_backend(const std::string&) {
  static CudaBackend backend;
  CHECK(executorch::runtime::register_backend({"CudaBackend", &backend}) == Error::Ok);
  Stream theirs = nullptr, ours = nullptr;
  CHECK_OK(api().create_stream(cuda::StreamKind::blocking, &theirs));
  CHECK_OK(api().create_stream(cuda::StreamKind::non_blocking, &ours));
  check_order_with(theirs, 6);
  CHECK(trt_et_use_stream(0, ours) == 0);
  check_order_with(theirs, 7);  // One more on the caller's stream, who may capture it.
  CHECK(trt_et_use_stream(0, nullptr) == 0);
  for (const Stream stream : {theirs, ours}) CHECK_OK(api().destroy_stream(stream));
}
