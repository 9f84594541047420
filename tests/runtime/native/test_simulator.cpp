#include <cstring>
#include <functional>
#include <thread>

#include "check.h"
#include "cuda/cuda_api.h"
#include "provider_support.h"
#include "simulated_api.h"
#include "tests.h"

using namespace trt_et;
using cuda::Api;
using cuda::CopyKind;

namespace {

Status launch(cuda::Stream stream, std::function<Status()> work) {
  return cuda::simulated_api()->launch(stream, std::move(work));
}

void test_work_is_deferred(Api& api) {
  void* memory = nullptr;
  cuda::Stream stream = nullptr;
  uint8_t in[16], out[16] = {};
  std::memset(in, 5, sizeof in);
  CHECK_OK(cuda::simulated_api()->set_device(0));
  CHECK_OK(api.allocate(16, &memory));
  CHECK_OK(api.create_stream(cuda::StreamKind::blocking, &stream));
  CHECK(static_cast<uint8_t*>(memory)[3] == 0xDB);
  CHECK_OK(api.copy(memory, in, 16, CopyKind::host_to_device, stream));
  std::memset(in, 9, sizeof in);  // CUDA may read pageable memory this late.
  CHECK_OK(api.copy(out, memory, 16, CopyKind::device_to_host, stream));
  CHECK(out[0] == 0 && static_cast<uint8_t*>(memory)[0] == 0xDB);
  CHECK_OK(api.synchronize_stream(stream));
  CHECK(out[0] == 9 && out[15] == 9);
  CHECK_OK(api.destroy_stream(stream));
  CHECK_OK(api.release(memory));
}

void test_wrong_pointers(Api& api) {
  void* memory = nullptr;
  void* other = nullptr;
  cuda::Stream stream = nullptr;
  uint8_t host[64] = {};
  CHECK_OK(cuda::simulated_api()->set_device(1));
  CHECK_OK(api.allocate(32, &other));
  CHECK_OK(cuda::simulated_api()->set_device(0));
  CHECK_OK(api.allocate(32, &memory));
  CHECK_OK(api.create_stream(cuda::StreamKind::blocking, &stream));
  auto* bytes = static_cast<uint8_t*>(memory);
  CHECK_OK(api.copy(bytes + 16, host, 16, CopyKind::host_to_device, stream));
  CHECK_FAILS(api.copy(bytes + 16, host, 17, CopyKind::host_to_device, stream), "offset 16");
  CHECK_FAILS(api.copy(host, bytes, 33, CopyKind::device_to_host, stream), "allocation of 32");
  CHECK_FAILS(api.copy(other, host, 8, CopyKind::host_to_device, stream),
              "on cuda:1, not on cuda:0");
  CHECK_FAILS(api.copy(host, host + 8, 8, CopyKind::host_to_device, host), "not a stream");
  CHECK_FAILS(api.copy(host, host + 8, 8, CopyKind::host_to_device, stream), "not memory of a");
  CHECK_FAILS(api.copy(bytes, bytes + 8, 8, CopyKind::host_to_device, stream), "no host memory");
  cuda::PointerInfo info;
  CHECK_OK(api.pointer_info(static_cast<uint8_t*>(other) + 31, &info));
  CHECK(info.kind == cuda::MemoryKind::device && info.device == 1);
  CHECK_OK(api.pointer_info(host, &info));
  CHECK(info.kind == cuda::MemoryKind::host);
  void* pinned = nullptr;
  CHECK_OK(cuda::simulated_api()->allocate_pinned(16, &pinned));
  CHECK_OK(api.pointer_info(pinned, &info));
  CHECK(info.kind == cuda::MemoryKind::pinned && info.device == -1);
  CHECK_FAILS(api.copy(pinned, memory, 16, CopyKind::device_to_device, stream), "is host memory");
  CHECK_FAILS(api.release(bytes + 1), "not allocated");
  // Freeing waits for what is queued.
  std::memset(pinned, 3, 16);
  CHECK_OK(api.copy(memory, pinned, 16, CopyKind::host_to_device, stream));
  CHECK_OK(cuda::simulated_api()->release_pinned(pinned));
  CHECK(bytes[15] == 3);
  host[7] = 1;
  CHECK_OK(api.copy(host, memory, 8, CopyKind::device_to_host, stream));
  CHECK_OK(api.release(memory));
  CHECK(host[7] != 1);
  CHECK_OK(api.synchronize_stream(stream));
  CHECK_FAILS(api.pointer_info(memory, &info), "use after free");
  CHECK_FAILS(api.release(memory), "double free");
  CHECK_OK(api.release(other));
  CHECK_OK(api.destroy_stream(stream));
  CHECK_FAILS(cuda::simulated_api()->set_device(2), "cuda:2 does not exist; 2 GPU(s)");
  CHECK_FAILS(cuda::simulated_api()->set_device(-1), "does not exist");
}

void test_events_and_failures(Api& api) {
  cuda::Stream first = nullptr, second = nullptr;
  cuda::Event event = nullptr;
  int order = 0;
  CHECK_OK(cuda::simulated_api()->set_device(0));
  CHECK_OK(api.create_stream(cuda::StreamKind::blocking, &first));
  CHECK_OK(api.create_event(&event));
  CHECK_OK(launch(first, [&order] { return order = order * 10 + 1, Status{}; }));
  CHECK_OK(api.record_event(event, first));
  CHECK_OK(launch(first, [&order] { return order = order * 10 + 3, Status{}; }));
  CHECK_OK(cuda::simulated_api()->set_device(1));
  CHECK_OK(api.create_stream(cuda::StreamKind::blocking, &second));
  CHECK_FAILS(api.record_event(event, second), "event of cuda:0");
  CHECK_FAILS(launch(first, [] { return Status{}; }), "while cuda:1 is current");
  CHECK_OK(api.wait_event(second, event));
  CHECK_OK(launch(second, [&order] { return order = order * 10 + 2, Status{}; }));
  CHECK(order == 0);
  CHECK_OK(api.synchronize_stream(second));
  CHECK(order == 12);  // Only what the event stands behind.
  CHECK_OK(cuda::simulated_api()->set_device(0));
  CHECK_OK(api.synchronize_stream(first));
  CHECK(order == 123);
  // A failure drops the rest, reaches those that wait for it, and is reported once.
  CHECK_OK(launch(first, [] { return Status{Error::Internal, "kernel broke"}; }));
  CHECK_OK(launch(first, [&order] { return order = 0, Status{}; }));
  CHECK_OK(api.record_event(event, first));
  CHECK_OK(api.wait_event(second, event));
  CHECK_FAILS(api.synchronize_stream(second), "kernel broke");
  CHECK_FAILS(api.synchronize_stream(first), "kernel broke");
  CHECK(order == 123);
  CHECK_OK(api.synchronize_stream(first));
  CHECK_OK(api.synchronize_stream(second));
  CHECK_OK(launch(first, [&api, first] { return api.synchronize_stream(first); }));
  CHECK_FAILS(api.synchronize_stream(first), "waits for the stream itself");
  CHECK_OK(api.destroy_event(event));
  CHECK_FAILS(api.destroy_event(event), "not an event");
  CHECK_OK(api.destroy_stream(first));
  CHECK_OK(api.destroy_stream(second));
}

// Blocking streams run in turns with the legacy stream, others do not.
void test_default_streams(Api& api) {
  using cuda::StreamKind;
  cuda::Stream blocking = nullptr, second = nullptr, free = nullptr;
  int order = 0;
  const auto queue = [&](cuda::Stream stream, int digit) {
    CHECK_OK(launch(stream, [&order, digit] { return order = order * 10 + digit, Status{}; }));
  };
  CHECK_OK(cuda::simulated_api()->set_device(0));
  CHECK_OK(api.create_stream(StreamKind::blocking, &blocking));
  CHECK_OK(api.create_stream(StreamKind::blocking, &second));
  CHECK_OK(api.create_stream(StreamKind::non_blocking, &free));
  queue(blocking, 1);
  queue(free, 9);
  queue(nullptr, 2);
  queue(blocking, 3);
  queue(second, 4);
  queue(cuda::kLegacyStream, 5);
  CHECK_OK(api.synchronize_stream(second));
  CHECK(order == 12435);
  CHECK_OK(api.synchronize_stream(free));
  CHECK(order == 124359);
  // A stream of each thread.
  order = 0;
  queue(cuda::kPerThreadStream, 1);
  std::thread([&] { CHECK_OK(api.synchronize_stream(cuda::kPerThreadStream)); }).join();
  CHECK(order == 0);
  CHECK_OK(api.synchronize_stream(cuda::kPerThreadStream));
  CHECK(order == 1);
  for (const cuda::Stream stream : {blocking, second, free}) CHECK_OK(api.destroy_stream(stream));
  CHECK_OK(api.create_stream(StreamKind::non_blocking, &second));
  CHECK(second == free);
  CHECK_OK(api.destroy_stream(second));
}

// What ends the capture of a thread's stream, and what other threads may do meanwhile.
void test_captures(Api& api) {
  cuda::Stream free = nullptr;
  cuda::Graph graph = nullptr;
  void* memory = nullptr;
  CHECK_OK(cuda::simulated_api()->set_device(0));
  CHECK_OK(api.create_stream(cuda::StreamKind::non_blocking, &free));
  const auto allocate = [&] {
    Status status = api.allocate(16, &memory);
    return status.ok() ? api.release(memory) : std::move(status);
  };
  const auto on_other_thread = [](const std::function<Status()>& call) {
    Status status;
    std::thread([&] { status = call(); }).join();
    return status;
  };
  CHECK_OK(api.begin_capture(free));
  CHECK_OK(launch(nullptr, [] { return Status{}; }));
  CHECK_OK(on_other_thread(allocate));
  CHECK_OK(api.end_capture(free, &graph));
  CHECK_OK(api.destroy_graph(graph));
  CHECK_OK(api.begin_capture(free));
  CHECK_FAILS(allocate(), "allocation while a stream is captured");
  CHECK(!api.end_capture(free, &graph).ok());
  CHECK_OK(api.begin_capture(free));
  CHECK_FAILS(on_other_thread([&] { return api.synchronize_stream(free); }), "captured");
  CHECK(!api.end_capture(free, &graph).ok());
  CHECK_OK(api.destroy_stream(free));
}

}  // namespace

void test_simulator(const std::string&) {
  CHECK_FAILS(cuda::choose("simulated:17"), "simulated:17");
  CHECK_OK(cuda::choose("simulated:2"));
  CHECK_FAILS(cuda::choose("real"), "already 'simulated:2'");
  test_work_is_deferred(api());
  test_wrong_pointers(api());
  test_events_and_failures(api());
  test_default_streams(api());
  test_captures(api());
  int device = -1;
  CHECK_OK(cuda::simulated_api()->set_device(1));
  {
    cuda::DeviceGuard guard(api());
    CHECK_OK(guard.enter(0));
  }
  CHECK_OK(api().current_device(&device));
  CHECK(device == 1);
  CHECK_OK(cuda::simulated_api()->set_device(0));
  CHECK(counter("live_bytes") == 0 && counter("mallocs") == counter("frees"));
  uint64_t value = 0;
  for (const char* name : {"", "unknown", "live_bytes:", "live_bytes:2", "live_bytes:1x"}) {
    CHECK(trt_et_counter(name, &value) == -1);
  }
}
