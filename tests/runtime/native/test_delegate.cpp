#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "cuda/device_allocator.h"
#include "delegate/delegate.h"
#include "owned_tensor.h"
#include "provider_support.h"
#include "tests.h"

using namespace trt_et;
using executorch::runtime::FreeableBuffer;

namespace {

// A reference engine, which uses the bytes in place.
std::unique_ptr<Delegate> load_in_place(const Bytes& blob) {
  FreeableBuffer buffer(blob.data(), blob.size(), nullptr);
  std::unique_ptr<Delegate> delegate;
  CHECK_OK(Delegate::create(&buffer, nullptr, {}, &delegate));
  return delegate;
}

// Memory on the device: bound in place, nothing waits until the copy to the host.
void test_device_memory(const Bytes& blob) {
  const auto delegate = load_in_place(blob);
  executorch::runtime::DeviceAllocator& allocator = cuda_allocator();
  std::vector<float> in(16, 1.0F), expected(8), out(8, 0.0F);
  OwnedTensor x({2, 8}, in.data()), y({2, 4}, expected.data());
  CHECK_OK(call(*delegate, {&x.value, &y.value}));
  for (const int device : {0, 1}) {
    const auto index = static_cast<int8_t>(device);
    auto from = allocator.allocate(64, index, 16), to = allocator.allocate(32, index, 16);
    CHECK(from.ok() && to.ok());
    OwnedTensor device_x({2, 8}, *from), device_y({2, 4}, *to);
    CHECK(allocator.copy_host_to_device(*from, in.data(), 64, index) == Error::Ok);
    const Counts before = stats();
    CHECK_OK(call(*delegate, {&device_x.value, &device_y.value}));
    const Counts after = stats();
    CHECK(after.synchronizations == before.synchronizations);
    CHECK(after.copies_peer - before.copies_peer == (device == 0 ? 0u : 2u));
    CHECK(static_cast<uint8_t*>(*to)[0] == 0);
    CHECK(allocator.copy_device_to_host(out.data(), *to, 32, index) == Error::Ok);
    CHECK(std::memcmp(out.data(), expected.data(), 32) == 0);
    // The results of another thread's call, and a second call on top of one that is not waited for.
    CHECK_OK(call(*delegate, {&device_x.value, &device_y.value}));
    std::thread([&] {
      CHECK_OK(call(*delegate, {&device_x.value, &device_y.value}));
      CHECK(allocator.copy_device_to_host(out.data(), *to, 32, index) == Error::Ok);
    }).join();
    CHECK(std::memcmp(out.data(), expected.data(), 32) == 0);
    CHECK(allocator.copy_device_to_host(out.data(), in.data(), 32, index) != Error::Ok);
    CHECK(allocator.copy_device_to_host(nullptr, *to, 32, index) != Error::Ok);
    CHECK(allocator.copy_host_to_device(*from, in.data(), 65, index) != Error::Ok);
    allocator.deallocate(*from, index);
    CHECK_FAILS(call(*delegate, {&device_x.value, &device_y.value}), "use after free");
    allocator.deallocate(*to, index);
  }
  CHECK(!allocator.allocate(16, 2, 16).ok());
  CHECK(!allocator.allocate(16, -2, 16).ok());
  CHECK(!allocator.allocate(16, 0, 3).ok());
  CHECK(!allocator.allocate(SIZE_MAX, 0, 16).ok());
  CHECK(allocator.copy_host_to_device(nullptr, nullptr, 0, 0) == Error::Ok);
  allocator.deallocate(nullptr, 0);
}

// One delegate for all threads, one for each thread, and loading and unloading meanwhile.
void test_threads(const Bytes& blob) {
  constexpr int kThreads = 8, kCalls = 200;
  const auto shared = load_in_place(blob);
  std::vector<float> ones(16, 1.0F), expected(8);
  OwnedTensor x({2, 8}, ones.data()), y({2, 4}, expected.data());
  CHECK_OK(call(*shared, {&x.value, &y.value}));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      auto own = load_in_place(blob);
      std::vector<float> in(16, 1.0F), out(8);
      OwnedTensor my_x({2, 8}, in.data()), my_y({2, 4}, out.data());
      for (int round = 0; round < kCalls; ++round) {
        std::fill(out.begin(), out.end(), 0.0F);
        CHECK_OK(call((round + i) % 2 == 0 ? *shared : *own, {&my_x.value, &my_y.value}));
        CHECK(std::memcmp(out.data(), expected.data(), 32) == 0);
        if (round % 50 == 49) own = load_in_place(blob);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Bytes that the engine cannot use in place are copied.
void test_engine_bytes(const Bytes& blob) {
  Bytes shifted(blob.size() + 1);
  std::memcpy(shifted.data() + 1, blob.data(), blob.size());
  FreeableBuffer buffer(shifted.data() + 1, blob.size(), nullptr);
  std::unique_ptr<Delegate> delegate;
  CHECK_OK(Delegate::create(&buffer, nullptr, {}, &delegate));
  CHECK(buffer.data() == nullptr);  // Given back.
  std::vector<float> in(16, 1.0F), out(8, 0.0F);
  OwnedTensor x({2, 8}, in.data()), y({2, 4}, out.data());
  // Numbers among the arguments are passed over.
  EValue number(int64_t{3});
  CHECK_OK(call(*delegate, {&number, &x.value, &number, &number, &y.value, &number}));
  CHECK(out[0] != 0.0F && std::isfinite(out[7]));
}

}  // namespace

void test_delegate(const std::string& blob_file) {
  const Bytes blob = read_bytes(blob_file);
  CHECK(!blob.empty());
  test_device_memory(blob);
  test_engine_bytes(blob);
  test_threads(blob);
  CHECK(counter("live_bytes") == 0 && counter("mallocs") == counter("frees"));
}
