// Shapes, optimization profiles and aliases through the provider, and what it refuses.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/compatibility.h"
#include "provider_support.h"
#include "tests.h"

using namespace trt_et;

namespace {

const std::string kProfiles =
    "fake\ninput x float32 -1,4\noutput y float32 -1,4\n"
    "profile\nrange x 1,4 1,4 2,4\nprofile\nrange x 4,4 8,4 16,4\nshift y x 1\n";

void test_profiles(bool ours) {
  const Bytes blob = ours ? make_blob(io("-1,4", range("1,4", "8,4", "16,4")), kProfiles)
                          : plan_blob(kProfiles, "", false);
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

// A prompt and a step, as TensorRT users write them: the step has a profile of its own although the
// prompt's takes it, too.
void test_overlapping_profiles() {
  const Bytes blob =
      unary_blob("-1", "profile\nrange x 1 8 16\nprofile\nrange x 1 1 1\nscale y x 2\n",
                 range("1", "8", "16"));
  std::vector<float> in(16, 1.0F), out(16);
  const auto calls_of = [&](Delegate& delegate, int32_t length) {
    OwnedTensor x({length}, in.data()), y({16}, out.data());
    const uint64_t before = counter("fake_calls");
    CHECK_OK(call(delegate, {&x.value, &y.value}));
    CHECK(out[static_cast<size_t>(length) - 1] == 2.0F);
    return counter("fake_calls") - before;
  };
  LoadOptions options;
  options.execution_contexts = 1;
  const auto chosen = load(blob, options);
  (void)calls_of(*chosen, 1);
  const uint64_t same = calls_of(*chosen, 1);
  const uint64_t prompt = calls_of(*chosen, 8), longer = calls_of(*chosen, 9);
  const uint64_t step = calls_of(*chosen, 1);
  CHECK(same < longer && prompt == longer + 1 && step == longer + 1);  // A change is one call more.
  options.optimization_profile = 0;
  const auto pinned = load(blob, options);
  (void)calls_of(*pinned, 8);
  CHECK(calls_of(*pinned, 1) == longer && calls_of(*pinned, 9) == longer);
  options.optimization_profile = 1;
  const auto step_only = load(blob, options);
  (void)calls_of(*step_only, 1);
  OwnedTensor x({8}, in.data()), y({16}, out.data());
  CHECK_FAILS(call(*step_only, {&x.value, &y.value}),
              "optimization profile 1, which was asked for, takes no x[8]");
  options.optimization_profile = 2;
  std::unique_ptr<Delegate> none;
  CHECK_FAILS(try_load(blob, &none, options), "optimization_profile is 2, but the engine has 2");
}

// Upstream's TR02: an output in the memory of an input. The engine of a KV cache.
Bytes cache_blob(const std::string& input = "cache") {
  return plan_blob(
      "fake\ninput new float32 4\ninput cache float32 4\noutput out float32 4\n"
      "output next float32 4\nalias next cache\nsum next cache new\nscale out next 10\n",
      ",\"aliased_io\":[{\"output\":\"next\",\"input\":\"" + input + "\"}]", false);
}

void test_aliases() {
  const auto delegate = load(cache_blob());
  Device fresh(4, 0, 1.0F), cache(4, 0, 0.0F), out(4, 0, 0.0F), next(4, 0, 0.0F);
  OwnedTensor a({4}, fresh.data), b({4}, cache.data), c({4}, out.data), d({4}, next.data);
  // The output is the cache itself, so that nothing is copied, then memory of its own.
  const Counts before = stats();
  for (int i = 0; i < 4; ++i) CHECK_OK(call(*delegate, {&a.value, &b.value, &c.value, &b.value}));
  CHECK(stats().copies_d2d == before.copies_d2d && stats().mallocs == before.mallocs);
  CHECK(cache.read(2) == 4.0F && out.read(2) == 40.0F);
  CHECK_OK(call(*delegate, {&a.value, &b.value, &c.value, &d.value}));
  CHECK(next.read(1) == 5.0F && cache.read(1) == 5.0F);
  std::vector<float> host_cache(4, 7.0F), host_next(4, 0.0F);
  OwnedTensor e({4}, host_cache.data()), f({4}, host_next.data());
  CHECK_OK(call(*delegate, {&a.value, &e.value, &c.value, &f.value}));
  CHECK(host_next[0] == 8.0F);
  std::unique_ptr<Delegate> none;
  CHECK_FAILS(try_load(cache_blob("new"), &none),
              "engine writes output 'next' into input 'cache', its blob says 'new'");
}

// One run with the typical shapes; memory is as without it.
void test_warm_up_at_load() {
  const Bytes blob =
      unary_blob("-1", "profile\nrange x 1 1 1\nprofile\nrange x 2 8 16\nscale y x 2\n",
                 range("1", "8", "16"));
  LoadOptions options;
  const Counts first = stats();
  const auto cold = load(blob, options);
  const Counts second = stats();
  options.warm_up_at_load = true;
  const auto warm = load(blob, options);
  const Counts third = stats();
  CHECK(second.launches == first.launches && third.launches == second.launches + 1);
  CHECK(third.live_bytes[0] - second.live_bytes[0] <= second.live_bytes[0] - first.live_bytes[0]);
  std::vector<float> in(16, 1.0F), out(16);
  OwnedTensor x({3}, in.data()), y({16}, out.data());
  CHECK_OK(call(*warm, {&x.value, &y.value}));
  CHECK(y.value.toTensor().size(0) == 3 && out[2] == 2.0F);
  // A profile of the user's choice need not take them: that is no error.
  options.optimization_profile = 0;
  const auto pinned = load(blob, options);
  CHECK(stats().launches == third.launches + 1);
  OwnedTensor step({1}, in.data());
  CHECK_OK(call(*pinned, {&step.value, &y.value}));
  // A static engine runs once, in memory of its own: the cache keeps what it holds.
  options.optimization_profile = -1;
  const Counts before = stats();
  const auto stateful = load(cache_blob(), options);
  CHECK(stats().launches == before.launches + 1);
  Device fresh(4, 0, 1.0F), cache(4, 0, 3.0F), result(4, 0, 0.0F);
  OwnedTensor a({4}, fresh.data), b({4}, cache.data), c({4}, result.data);
  CHECK_OK(call(*stateful, {&a.value, &b.value, &c.value, &b.value}));
  CHECK(cache.read(2) == 4.0F);
}

void test_shapes_of_all_kinds() {
  // 0-d to ExecuTorch and [1] to the engine, and nothing at all.
  const auto scalar =
      load(plan_blob("fake\ninput x float32 1\noutput y float32 1\nscale y x 2\n", "", false));
  float in = 4.0F, out = 0.0F;
  OwnedTensor x({}, &in), y({}, &out);
  CHECK_OK(call(*scalar, {&x.value, &y.value}));
  CHECK(out == 8.0F && y.value.toTensor().dim() == 0);
  const auto zero_d =
      load(make_blob(io(""), "fake\ninput x float32 -\noutput y float32 -\nshift y x 1\n"));
  CHECK_OK(call(*zero_d, {&x.value, &y.value}));
  CHECK(out == 5.0F);
  const auto empty = load(unary_blob("0,3", "relu y x\n"));
  OwnedTensor nothing({0, 3}, nullptr), no_result({0, 3}, nullptr);
  CHECK_OK(call(*empty, {&nothing.value, &no_result.value}));
  // The shape is known after the run.
  const auto late =
      load(unary_blob("-1", "late y\nrange x 1 4 6\nscale y x 3\n", range("1", "4", "6")));
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
  const std::string x = foreign("x", true);
  const std::pair<Bytes, const char*> refused[] = {
      {make_blob(io("2,8"), "not an engine"), "TensorRT 11.7.3 refuses"},
      {make_blob(x + "," + foreign("z", false), kDoublingPlan, "", false),
       "engine has no output 'z'"},
      {make_blob(x, kDoublingPlan, "", false), "engine has 2 inputs and outputs, its blob names 1"},
      {make_blob(binding("x", "2,9", true) + "," + binding("y", "2,8", false), kDoublingPlan),
       "disagree on 'x', which is [2, 8]"},
      {plan_blob("fake\ninput x fp8 2\noutput y float32 2\nrelu y x\n", "", false),
       "a dtype that ExecuTorch does not have"}};
  for (const auto& [blob, reason] : refused) CHECK_FAILS(try_load(blob, &none), reason);
  // An RTX engine that names its targets runs on those only; the name of its GPU says nothing.
  Blob rtx;
  rtx.metadata.builder = "tensorrt_rtx";
  rtx.metadata.hardware_compatible = true;
  CHECK_OK(check_compatibility(api(), rtx, 0));
  rtx.metadata.compute_capabilities = {"8.6", "9.0"};
  CHECK_FAILS(check_compatibility(api(), rtx, 0),
              "for compute capability 8.6, 9.0 (any GPU), but cuda:0 is 0.0");
  rtx.metadata.compute_capabilities = {"8.6", "0.0"};
  CHECK_OK(check_compatibility(api(), rtx, 0));
}

}  // namespace

void test_provider_shapes() {
  test_profiles(true);
  test_profiles(false);
  test_overlapping_profiles();
  test_warm_up_at_load();
  test_aliases();
  test_shapes_of_all_kinds();
  test_refusals();
}
