// Engines that share scratch memory, and engines on a stream of the caller's.
#include <optional>
#include <string>
#include <thread>

#include "provider_support.h"
#include "simulated_api.h"
#include "tests.h"

using namespace trt_et;

// In place of ExecuTorch's CUDA extension, which is found by this name.
namespace executorch::extension::cuda {
thread_local std::optional<void*> t_caller_stream;
__attribute__((visibility("default"), used)) std::optional<void*> getCallerStream() {
  return t_caller_stream;
}
}  // namespace executorch::extension::cuda

namespace {

// Two engines of a method take turns in one scratch memory, of the larger one's size.
void test_shared_device_memory() {
  const int method = 0;
  LoadOptions options;
  options.shared_device_memory = true;
  options.method = &method;
  const uint64_t bytes = stats().live_bytes[0];
  {
    const auto first = load(doubling_blob(), options);
    Device in(16, 0, 3.0F), middle(16, 0, 0.0F), out(16, 0, 0.0F);
    OwnedTensor x({2, 8}, in.data), y({2, 8}, middle.data), z({2, 8}, out.data);
    for (int i = 0; i < 4; ++i) CHECK_OK(call(*first, {&x.value, &y.value}));
    const uint64_t before = stats().live_bytes[0];
    // The memory moves.
    const auto second = load(unary_blob("2,8", "scratch 2048\nshift y x 1\n"), options);
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
  Scaling scaling;
  Device &in = scaling.in, &out = scaling.out;
  CHECK_OK(scaling.run());
  cuda::Stream stream = nullptr;
  CHECK_OK(api().create_stream(cuda::StreamKind::non_blocking, &stream));
  CHECK(trt_et_use_stream(0, stream) == 0);
  CHECK(trt_et_use_stream(2, stream) == -1);
  CHECK_OK(scaling.run());
  CHECK_OK(api().synchronize_stream(stream));
  CHECK(reinterpret_cast<float*>(out.data)[3] == 6.0F);
  CHECK(trt_et_use_stream(0, nullptr) == 0);
  CHECK_OK(scaling.run());
  CHECK_OK(api().synchronize_stream(stream));
  CHECK(out.read(3) == 6.0F);
  // ExecuTorch's guard, for streams of this GPU only.
  executorch::extension::cuda::t_caller_stream = stream;
  in.values.assign(16, 4.0F);
  in.write();
  CHECK_OK(scaling.run());
  CHECK_OK(api().synchronize_stream(stream));
  CHECK(reinterpret_cast<float*>(out.data)[3] == 8.0F);
  CHECK_OK(cuda::simulated_api()->set_device(1));
  cuda::Stream foreign = nullptr;
  CHECK_OK(api().create_stream(cuda::StreamKind::non_blocking, &foreign));
  CHECK_OK(cuda::simulated_api()->set_device(0));
  executorch::extension::cuda::t_caller_stream = foreign;
  CHECK_OK(scaling.run());
  executorch::extension::cuda::t_caller_stream = std::nullopt;
  CHECK(out.read(3) == 8.0F);
  CHECK_OK(api().destroy_stream(foreign));
  CHECK_OK(api().destroy_stream(stream));
}

}  // namespace

void test_provider_streams_and_scratch() {
  test_shared_device_memory();
  test_one_stream_of_the_caller();
}
