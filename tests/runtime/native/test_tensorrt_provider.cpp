// The delegate with the real provider, compiled against the fake TensorRT, on simulated GPUs.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend_calls.h"
#include "simulated_api.h"
#include "tests.h"
#include "trt_et/options.h"

using namespace trt_et;

namespace {

void test_steady_state() {
  Scaling scaling;
  for (int i = 0; i < 4; ++i) CHECK_OK(scaling.run());
  CHECK(scaling.out.read(7) == 6.0F);
  CHECK(counter("live_graphs") == 1);
  // On the device: a launch, an event, and the look at the current device. Nothing else.
  const Counts before = stats();
  const uint64_t launches = counter("graph_launches"), calls = counter("fake_calls");
  for (int i = 0; i < 20; ++i) CHECK_OK(scaling.run());
  CHECK(stats().calls - before.calls == 60);
  CHECK(counter("graph_launches") - launches == 20 && counter("fake_calls") == calls);
  // An address moves: another graph comes, and nothing waits.
  Device other(16, 0, 5.0F);
  OwnedTensor z({2, 8}, other.data);
  const uint64_t waits = stats().synchronizations, captures = counter("captures");
  for (int i = 0; i < 4; ++i) {
    CHECK_OK(call(*scaling.delegate, {&z.value, &scaling.y.value}));
    CHECK(counter("live_graphs") == (i < 2 ? 0u : 1u));
  }
  CHECK(counter("captures") == captures + 1 && stats().synchronizations == waits);
  CHECK(scaling.out.read(3) == 10.0F);
}

// Several outputs on the host: one wait.
void test_host_io() {
  const auto delegate =
      load(plan_blob("fake\ninput x float32 16\noutput y float32 16\noutput z float32 16\n"
                     "scale y x 2\nshift z x 1\n"));
  std::vector<float> in(16, 1.5F), first(16), second(16);
  OwnedTensor x({16}, in.data()), y({16}, first.data()), z({16}, second.data());
  const auto run = [&] { CHECK_OK(call(*delegate, {&x.value, &y.value, &z.value})); };
  for (int i = 0; i < 4; ++i) run();
  const Counts before = stats();
  in[5] = 4.0F;
  run();
  const Counts after = stats();
  CHECK(first[5] == 8.0F && first[4] == 3.0F && second[5] == 5.0F && second[4] == 2.5F);
  CHECK(after.calls - before.calls == 1 + 2 + 3);  // I + O copies + 3
  CHECK(after.synchronizations - before.synchronizations == 1);
}

// Without graphs, by option or because TensorRT-RTX does not let the engine's runs be captured, the
// engine is queued plainly each time, with nothing bound anew.
void test_without_graphs(bool rtx) {
  LoadOptions options;
  options.cuda_graphs = rtx;
  options.runtime_cache = "off";
  const char* library = rtx ? TRT_ET_FAKE_RTX_LIBRARY : TRT_ET_FAKE_LIBRARY;
  set_environment_variable("TRT_ET_TENSORRT_LIBRARY", library);
  const std::string lines = rtx ? "scale y x 2\nplain\n" : "scale y x 2\n";
  Scaling scaling(options, unary_blob("2,8", lines, "", "", rtx));
  set_environment_variable("TRT_ET_TENSORRT_LIBRARY", TRT_ET_FAKE_LIBRARY);
  CHECK_OK(scaling.run());
  const uint64_t calls = counter("fake_calls"), captures = counter("captures");
  for (int i = 0; i < 5; ++i) CHECK_OK(scaling.run());
  CHECK(counter("fake_calls") == calls + 5 && counter("captures") == captures);
  CHECK(scaling.out.read(0) == 6.0F);
}

// TensorRT-RTX takes no memory of its own for a static engine whose runs can be captured, and the
// delegate gives it; for a dynamic one it takes its own.
void test_memory_of_rtx_contexts() {
  LoadOptions options;
  options.runtime_cache = "off";
  set_environment_variable("TRT_ET_TENSORRT_LIBRARY", TRT_ET_FAKE_RTX_LIBRARY);
  const std::string lines = "scratch 4096\nuser_memory\nscale y x 2\n";
  const uint64_t before = stats().live_bytes[0];
  {
    Scaling scaling(options, unary_blob("2,8", lines, "", "", true));
    CHECK(stats().live_bytes[0] - before >= 4096);
    for (int i = 0; i < 4; ++i) CHECK_OK(scaling.run());
    CHECK(counter("live_graphs") == 1 && scaling.out.read(0) == 6.0F);
  }
  CHECK(stats().live_bytes[0] == before);
  std::unique_ptr<Delegate> none;
  const Bytes dynamic = unary_blob("-1,8", lines, range("1,8", "2,8", "4,8"), "", true);
  CHECK_FAILS(try_load(dynamic, &none, options), "requires kUSER_MANAGED");
  set_environment_variable("TRT_ET_TENSORRT_LIBRARY", TRT_ET_FAKE_LIBRARY);
}

// ExecuTorch plans at multiples of 16, TensorRT wants 256. The copies are part of the graph.
void test_misaligned(bool graphs) {
  LoadOptions options;
  options.cuda_graphs = graphs;
  const auto delegate = load(doubling_blob(), options);
  Device in(16, 0, 3.0F), out(16, 0, 0.0F), other(16, 0, 4.0F);
  for (Device* device : {&in, &out, &other}) device->data += 16;
  for (Device* device : {&in, &other}) device->write();
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
  Scaling scaling(options);
  const Counts before = stats();
  for (int i = 0; i < 4; ++i) CHECK_OK(scaling.run());
  CHECK(stats().copies_peer - before.copies_peer == 8);
  CHECK(stats().synchronizations == before.synchronizations);
  CHECK(scaling.out.read(9) == 6.0F);
  int device = -1;
  CHECK_OK(api().current_device(&device));
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

Bytes plan_with(const std::string& line) { return plan_blob(kDoublingPlan + line + "\n"); }

Status refusal(const Bytes& blob, const LoadOptions& options = {}) {
  std::unique_ptr<Delegate> none;
  return try_load(blob, &none, options);
}

void test_no_memory_is_told_from_another_engine() {
  const Status full = refusal(plan_with("weights 1000000000000000"));
  CHECK_FAILS(full, "no GPU memory for an engine of");
  CHECK_FAILS(full, "out of memory");
  CHECK(full.error == Error::MemoryAllocationFailed);
  const Status damaged = refusal(plan_with("linear"));
  CHECK(damaged.error == Error::DelegateInvalidCompatibility);
}

// Which is not always for lack of memory.
void test_contexts_are_refused_with_tensorrts_reason() {
  const Status other = refusal(plan_with("no_context profile_is_in_use"));
  CHECK_FAILS(other, "TensorRT gives no execution context: profile_is_in_use");
  CHECK(other.error == Error::Internal);
  const Status silent = refusal(plan_with("no_context"));
  CHECK_FAILS(silent, "TensorRT gives no execution context: it says no reason");
  CHECK(silent.error == Error::MemoryAllocationFailed);
  const Status full = refusal(plan_with("scratch 1000000000000000"));
  CHECK_FAILS(full, "out of memory");
  CHECK(full.error == Error::MemoryAllocationFailed);
}

void test_plugins() {
  const std::string folder = TRT_ET_FAKE_PLUGINS;
  const Status missing = refusal(plan_with("plugin Swirl"));
  CHECK_FAILS(missing, "name its library in plugin_libraries: Cannot find plugin: Swirl");
  CHECK(missing.error == Error::NotFound);
  LoadOptions options;
  options.plugin_libraries = folder + "/none.so";
  CHECK_FAILS(refusal(plan_with(""), options), "plugin library does not load");
  // Into TensorRT's registry: TensorRT opens it, or it was linked to TensorRT.
  options.plugin_libraries =
      folder + "/libfake_plugin_library.so:" + folder + "/libfake_nvinfer_plugin.so";
  CHECK_OK(refusal(plan_with("plugin Swirl\nplugin Twirl"), options));
  // Once for the process.
  CHECK_OK(refusal(plan_with("plugin Swirl\nplugin Twirl\nscratch 8"), options));
}

void test_code_of_engines() {
  LoadOptions options;
  CHECK_FAILS(refusal(plan_with("host_code")), "holds host code, which is not allowed");
  options.engine_host_code = true;
  CHECK_OK(refusal(plan_with("host_code"), options));
  CHECK_FAILS(refusal(plan_with("host_code")), "holds host code, which is not allowed");
}

void test_dla() {
  LoadOptions options;
  options.dla_core = 1;
  CHECK_FAILS(refusal(plan_with("dla"), options), "finds 0 DLA core(s) on cuda:0 (TensorRT 11.0");
  CHECK(setenv("TRT_ET_FAKE_DLA_CORES", "2", 1) == 0);
  CHECK_FAILS(refusal(plan_with("dla")), "needs a DLA core");
  const auto delegate = load(plan_with("dla"), options);
  // The same engine on the other core is another engine.
  options.dla_core = 0;
  const uint64_t loads = counter("engine_loads");
  CHECK_OK(refusal(plan_with("dla"), options));
  CHECK(counter("engine_loads") == loads + 1);
  options.dla_core = 2;
  CHECK_FAILS(refusal(plan_with("dla"), options), "dla_core is 2, but TensorRT");
  CHECK(unsetenv("TRT_ET_FAKE_DLA_CORES") == 0);
}

// A second context comes for a second shape, unless the option, the GPU or its memory forbid that.
void test_contexts() {
  const Bytes blob = unary_blob("-1", "weights 64\nscratch 4096\nrange x 1 8 16\nscale y x 2\n",
                                range("1", "8", "16"));
  const auto scratch_of = [&](const LoadOptions& options, int shapes) {
    Device in(16, 0, 3.0F), out(16, 0, 0.0F);
    const uint64_t before = stats().live_bytes[0];
    const auto delegate = load(blob, options);
    for (int i = 0; i < 6; ++i) {
      for (int32_t length = 1; length <= shapes; ++length) {
        OwnedTensor x({length}, in.data), y({16}, out.data);
        CHECK_OK(call(*delegate, {&x.value, &y.value}));
      }
    }
    CHECK(out.read(0) == 6.0F);
    return stats().live_bytes[0] - before - 64;
  };
  LoadOptions options;
  CHECK(scratch_of(options, 1) == 4096 && scratch_of(options, 2) == 2 * 4096);
  CHECK(scratch_of(options, 5) == 2 * 4096);
  cuda::simulated_api()->set_integrated(true);
  CHECK(scratch_of(options, 5) == 4096);
  cuda::simulated_api()->set_integrated(false);
  cuda::simulated_api()->set_free_memory(4 * 4096 - 1);
  CHECK(scratch_of(options, 5) == 4096);
  cuda::simulated_api()->set_free_memory(size_t{1} << 40);
  options.execution_contexts = 3;
  CHECK(scratch_of(options, 5) == 3 * 4096);
  options.cuda_graphs = false;
  CHECK(scratch_of(options, 5) == 4096);
}

void test_description_of_engines() {
  const auto text = [] {
    std::string out(trt_et_describe_engines(nullptr, 0), ' ');
    CHECK(trt_et_describe_engines(out.data(), out.size() + 1) == out.size());
    return out;
  };
  CHECK(text() == "[]");
  LoadOptions options;
  options.cuda_graphs = false;
  Scaling plain(options), scaling;
  std::vector<float> host(16);
  OwnedTensor z({2, 8}, host.data());
  for (int i = 0; i < 5; ++i) CHECK_OK(scaling.run());
  CHECK_OK(call(*plain.delegate, {&plain.x.value, &z.value}));
  const std::string first =
      "{\"contexts\":1,\"device\":0,\"engine\":\"TensorRT\",\"engine_bytes\":" +
      std::to_string(kDoublingPlan.size()) + ",\"graph_launches\":";
  const std::string rest = "\",\"profile\":0,\"scratch_bytes_per_context\":512,\"staging_bytes\":";
  CHECK(text() == "[" + first + "0,\"no_graph\":\"option cuda_graphs is off" + rest + "64}, " +
                      first + "3,\"no_graph\":\"" + rest + "0}]");
  LoadOptions elsewhere;
  elsewhere.device = 1;
  const auto moved = load(doubling_blob(), elsewhere);
  CHECK(text().find("null") == std::string::npos);
}

// Each call of the interface ends before its lines are written.
std::vector<std::pair<int, std::string>> g_lines;

void test_log_function() {
  trt_et_set_log_function([](int level, const char* text) { g_lines.emplace_back(level, text); });
  CHECK(trt_et_record(0, nullptr) == -1);
  trt_et_set_log_function(nullptr);
  CHECK(trt_et_record(0, nullptr) == -1);
  CHECK(g_lines.size() == 1 && g_lines[0].first == 0);
  CHECK(g_lines[0].second == "TensorRTBackend: trt_et_record: event is null");
  g_lines = {};
}

// In one line of each kind at each load, whatever a file's names are and how many.
void test_unknown_names_are_told() {
  trt_et_set_log_function([](int level, const char* text) {
    if (std::strstr(text, "unknown environment variable") == nullptr) {
      g_lines.emplace_back(level, text);
    }
  });
  char off[] = "0";
  const std::string long_name(4 << 20, 'k');
  std::vector<CompileSpec> specs = {
      {"cuda_graf", {off, 1}}, {"partition", {off, 1}}, {"use_shared_engines", {off, 1}}};
  specs.insert(specs.end(), 50000, {long_name.c_str(), {off, 1}});
  executorch::runtime::BackendOption option{};
  std::strncpy(option.key, "blocking_wait", sizeof option.key - 1);
  option.value = true;
  executorch::runtime::MemoryAllocator allocator(0, nullptr);
  BackendInitContext context(&allocator, nullptr, nullptr, nullptr, {&option, 1});
  for (int i = 0; i < 2; ++i) {
    const Bytes blob = scale_blob();
    executorch::runtime::FreeableBuffer bytes(blob.data(), blob.size(), nullptr);
    const auto made = backend().init(context, &bytes, {specs.data(), specs.size()});
    CHECK(made.ok());
    backend().destroy(*made);
  }
  trt_et_set_log_function(nullptr);
  CHECK(g_lines.size() == 4);
  CHECK(g_lines[0].second.find("unknown load option 'blocking_wait' is ignored: docs/native.md") !=
        std::string::npos);
  CHECK(g_lines[3].second.find("unknown compile spec 'cuda_graf' (and 50000 more) is ignored") !=
        std::string::npos);
  g_lines = {};
}

// The typed options are those of the backend.
void test_typed_options() {
  Options all;
  all.device(1).cuda_graphs(true).execution_contexts(1).optimization_profile(-1);
  all.blocking_waits(false).warm_up_at_load(false).profile_layers(false).shared_device_memory(
      false);
  all.weight_streaming_budget(-1).runtime_cache("off");
  CHECK(all.set() == Error::Ok);
  CHECK(Options().execution_contexts(65).set() == Error::InvalidArgument);
  CHECK(Options().weight_streaming_percentage(100).set() == Error::Ok);
  CHECK(Options().weight_streaming_percentage(101).set() == Error::InvalidArgument);
  executorch::runtime::LoadBackendOptionsMap by_backend;
  CHECK(all.add_to(by_backend) == Error::Ok);
  CHECK(by_backend.get_options(TRT_ET_BACKEND_NAME).size() == 10);
  for (const auto& option : by_backend.get_options(TRT_ET_BACKEND_NAME)) {
    CHECK(set_option(option.key, "") == Error::Ok);  // Taken back.
  }
}

// Two engines of a method take turns in one scratch memory, of the larger one's size.
void test_shared_device_memory() {
  const int method = 0;
  LoadOptions options;
  options.shared_device_memory = true;
  options.method = &method;
  const auto first = load(doubling_blob(), options);
  Device in(16, 0, 3.0F), middle(16, 0, 0.0F), out(16, 0, 0.0F);
  OwnedTensor x({2, 8}, in.data), y({2, 8}, middle.data), z({2, 8}, out.data);
  for (int i = 0; i < 4; ++i) CHECK_OK(call(*first, {&x.value, &y.value}));
  const uint64_t before = stats().live_bytes[0];
  // The memory moves.
  const auto second = load(unary_blob("2,8", "scratch 2048\nshift y x 1\n"), options);
  CHECK(stats().live_bytes[0] - before == 2048 - 512 + 1);
  const auto run_both = [&] {
    CHECK_OK(call(*first, {&x.value, &y.value}));
    CHECK_OK(call(*second, {&y.value, &z.value}));
  };
  for (int i = 0; i < 5; ++i) run_both();
  CHECK(counter("live_graphs") == 2);
  std::thread([&] {
    run_both();
    CHECK(out.read(6) == 7.0F);
  }).join();
  CHECK_OK(call(*second, {&x.value, &z.value}));
  CHECK(out.read(6) == 4.0F);
}

// Doubles memory that the host reaches, and waits once; returns the bytes that the call copied.
uint64_t bytes_copied(Delegate& delegate, void* from, void* to, float value) {
  OwnedTensor x({2, 8}, from), y({2, 8}, to);
  std::fill_n(static_cast<float*>(from), 16, value);
  std::fill_n(static_cast<float*>(to), 16, 0.0F);
  const Counts before = stats();
  CHECK_OK(call(delegate, {&x.value, &y.value}));
  CHECK(static_cast<float*>(to)[15] == 2.0F * value);
  const Counts after = stats();
  CHECK(after.synchronizations - before.synchronizations == 1);
  CHECK(after.copies_d2d == before.copies_d2d);
  return after.bytes_h2d - before.bytes_h2d + after.bytes_d2h - before.bytes_d2h;
}

// Managed memory is used in place, and the host reads it as soon as the call returns.
void test_managed_memory() {
  void *in = nullptr, *out = nullptr;
  CHECK_OK(cuda::simulated_api()->allocate_managed(64, &in));
  CHECK_OK(cuda::simulated_api()->allocate_managed(64, &out));
  const auto delegate = load(doubling_blob());
  for (int i = 1; i <= 5; ++i) CHECK(bytes_copied(*delegate, in, out, static_cast<float>(i)) == 0);
  for (void* memory : {in, out}) CHECK_OK(cuda::simulated_api()->release(memory));
}

// An integrated GPU works in the host's pinned memory, and the call waits for it.
void test_pinned_memory() {
  void *in = nullptr, *out = nullptr;
  CHECK_OK(cuda::simulated_api()->allocate_pinned(1024, &in));
  CHECK_OK(cuda::simulated_api()->allocate_pinned(64, &out));
  const auto run = [&](Delegate& delegate, size_t offset, float value) {
    return bytes_copied(delegate, static_cast<char*>(in) + offset, out, value);
  };
  const auto discrete = load(doubling_blob());
  for (int i = 1; i <= 5; ++i) CHECK(run(*discrete, 0, static_cast<float>(i)) == 2 * 64);
  cuda::simulated_api()->set_integrated(true);
  for (const bool graphs : {true, false}) {
    LoadOptions options;
    options.cuda_graphs = graphs;
    const auto integrated = load(doubling_blob(), options);
    for (int i = 1; i <= 5; ++i) CHECK(run(*integrated, 0, static_cast<float>(i)) == 0);
    // TensorRT does not take every address.
    CHECK(run(*integrated, 16, 7.0F) == 64);
    CHECK(run(*integrated, 0, 8.0F) == 0);
  }
  cuda::simulated_api()->set_integrated(false);
  for (void* memory : {in, out}) CHECK_OK(cuda::simulated_api()->release_pinned(memory));
}

// A GPU with the host's page tables works in pageable memory, too, if its address is aligned.
void test_pageable_memory() {
  constexpr size_t kBuffers = 6;
  const auto allocate = [](size_t bytes) {
    return std::unique_ptr<float, decltype(&std::free)>(
        static_cast<float*>(std::aligned_alloc(256, bytes)), &std::free);
  };
  const auto in = allocate(kBuffers * 256), out = allocate(kBuffers * 256);
  // Calls with the tensors at these offsets, in floats.
  const auto run = [&](Delegate& delegate, size_t from, size_t to, float value) {
    return bytes_copied(delegate, in.get() + from, out.get() + to, value);
  };
  // Orin shares its memory, but not the host's page tables.
  cuda::simulated_api()->set_integrated(true);
  const auto orin = load(doubling_blob());
  for (int i = 1; i <= 5; ++i) CHECK(run(*orin, 0, 0, static_cast<float>(i)) == 2 * 64);
  cuda::simulated_api()->set_integrated(true, true);
  for (const bool graphs : {true, false}) {
    LoadOptions options;
    options.cuda_graphs = graphs;
    const auto thor = load(doubling_blob(), options);
    for (int i = 1; i <= 5; ++i) CHECK(run(*thor, 0, 0, static_cast<float>(i)) == 0);
    CHECK(run(*thor, 4, 0, 6.0F) == 64 && run(*thor, 0, 4, 7.0F) == 64);
    CHECK(run(*thor, 0, 0, 8.0F) == 0);
    // Tensors that move are bound again, or copied beside the graph.
    for (size_t i = 0; i < 4 * kBuffers; ++i) {
      const size_t at = i % kBuffers * 64;
      const uint64_t copied = run(*thor, at, at, static_cast<float>(i));
      CHECK(graphs ? copied % 64 == 0 : copied == 0);
    }
  }
  cuda::simulated_api()->set_integrated(false);
}

}  // namespace

void test_tensorrt_provider(const std::string&) {
  std::unique_ptr<Delegate> none;
  CHECK_FAILS(try_load(doubling_blob(), &none), "cannot run on simulated GPUs");
  use_fake_tensorrt();
  test_steady_state();
  test_host_io();
  test_without_graphs(false);
  test_without_graphs(true);
  test_memory_of_rtx_contexts();
  test_misaligned(true);
  test_misaligned(false);
  test_other_gpu();
  test_sharing();
  test_no_memory_is_told_from_another_engine();
  test_contexts_are_refused_with_tensorrts_reason();
  test_plugins();
  test_code_of_engines();
  test_dla();
  test_provider_shapes();
  test_state();
  test_description_of_engines();
  test_log_function();
  test_unknown_names_are_told();
  test_typed_options();
  test_contexts();
  test_shared_device_memory();
  test_managed_memory();
  test_pinned_memory();
  test_pageable_memory();
  test_kernel_saver();
  const Counts end = stats();
  CHECK(end.live_bytes[0] == 0 && end.live_bytes[1] == 0 && counter("engines") == 0);
}
