#include "simulated_api.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace trt_et::cuda {
namespace {

constexpr size_t kPeer = 3;

// Counters by their name; kCounts of them.
constexpr const char* kNames[] = {
    "mallocs",        "frees",      "launches",  "synchronizations", "calls",      "captures",
    "graph_launches", "fake_calls", "failures",  "copies_h2d",       "copies_d2h", "copies_d2d",
    "copies_peer",    "bytes_h2d",  "bytes_d2h", "bytes_d2d",        "bytes_peer"};
static_assert(std::size(kNames) == kCounts);

}  // namespace

SimulatedApi::SimulatedApi(int devices) : devices_(devices), streams_(devices) {
  const char* value = std::getenv("TRT_ET_SIM_FAIL_AFTER");
  if (value != nullptr) fail_after(std::strtoull(value, nullptr, 10));
}

template <typename F>
Status SimulatedApi::call(const char* what, F&& work) {
  const Inside inside;
  TRT_ET_TRY(enter(what));
  return work();
}

template <typename F>
Status SimulatedApi::call(const char* what, Stream stream, F&& work) {
  return call(what, [&]() -> Status {
    SimStreamPtr queue;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
    return work(queue);
  });
}

template <typename F>
Status SimulatedApi::call_anyway(const char* what, F&& work) {
  const Inside inside;
  Status failure = enter(what);
  Status status = work();
  return status.ok() ? failure : status;
}

Status SimulatedApi::device_count(int* count) {
  return call("device_count", [&] { return *count = devices_, Status{}; });
}

Status SimulatedApi::device_info(int device, DeviceInfo* info) {
  return call("device_info", [&]() -> Status {
    TRT_ET_TRY(check_device(device));
    *info = DeviceInfo{"simulated GPU", 0, 0, integrated_, pageable_access_};
    return {};
  });
}

Status SimulatedApi::current_device(int* device) {
  return call("current_device", [&] { return *device = t_device, Status{}; });
}

Status SimulatedApi::set_device(int device) {
  return call("set_device", [&]() -> Status {
    TRT_ET_TRY(check_device(device));
    t_device = device;
    return {};
  });
}

Status SimulatedApi::enter_device(int device, Entered* entered) {
  return call("enter_device", [&]() -> Status {
    TRT_ET_TRY(check_device(device));
    *entered = {t_device != device, t_device};
    t_device = device;
    return {};
  });
}

Status SimulatedApi::leave_device(const Entered& entered) {
  return call_anyway("leave_device", [&] { return t_device = entered.previous, Status{}; });
}

Status SimulatedApi::free_memory(size_t* bytes) {
  return call("free_memory", [&] { return *bytes = free_bytes_, Status{}; });
}

Status SimulatedApi::allocate(size_t size, void** pointer) {
  return call("allocate", [&] { return allocate_on(t_device, size, pointer, false); });
}

Status SimulatedApi::allocate_managed(size_t size, void** pointer) {
  return call("allocate_managed", [&] { return allocate_on(t_device, size, pointer, true); });
}

Status SimulatedApi::allocate_pinned(size_t size, void** pointer) {
  return call("allocate_pinned",
              [&] { return allocate_on(SimMemory::kPinned, size, pointer, false); });
}

Status SimulatedApi::allocate_on(int device, size_t size, void** pointer, bool managed) {
  TRT_ET_TRY(streams_.check_unsafe("allocation"));
  TRT_ET_TRY(memory_.allocate(device, size, pointer, managed));
  if (device != SimMemory::kPinned) counters_.add(kMallocs);
  return {};
}

Status SimulatedApi::release(void* pointer) {
  return call_anyway("release", [&]() -> Status {
    if (pointer == nullptr) return {};
    TRT_ET_TRY(streams_.check_unsafe("freeing memory"));
    PointerInfo info;
    if (memory_.find(pointer, &info).ok() && info.device >= 0) streams_.run_all(info.device);
    TRT_ET_TRY(memory_.release(pointer));
    counters_.add(kFrees);
    return {};
  });
}

Status SimulatedApi::release_pinned(void* pointer) {
  return call_anyway("release_pinned", [&]() -> Status {
    TRT_ET_TRY(streams_.check_unsafe("freeing memory"));
    for (int device = 0; device < devices_; ++device) streams_.run_all(device);
    return memory_.release(pointer);
  });
}

Status SimulatedApi::pointer_info(const void* pointer, PointerInfo* info) {
  return call("pointer_info", [&] { return memory_.find(pointer, info); });
}

Status SimulatedApi::copy(void* to, const void* from, size_t size, CopyKind kind, Stream stream) {
  return call("copy", stream, [&](const SimStreamPtr& queue) -> Status {
    const int device = queue->device();
    const bool from_host = kind == CopyKind::host_to_device;
    const bool to_host = kind == CopyKind::device_to_host;
    bool pageable = false;
    TRT_ET_TRY(from_host ? check_host(from, &pageable)
                         : memory_.check(from, size, device, "source"));
    TRT_ET_TRY(to_host ? check_host(to, &pageable)
                       : memory_.check(to, size, device, "destination"));
    if (pageable && queue->breaks_capture()) {
      return {Error::InvalidState, "copy of pageable memory while its stream is captured"};
    }
    count_copy(static_cast<size_t>(kind), size);
    // Pageable memory is read as late as CUDA may, too.
    return streams_.enqueue(*queue, [this, to, from, size, device, from_host, to_host, pageable] {
      if (!from_host) TRT_ET_TRY(memory_.check(from, size, device, "source"));
      if (!to_host) TRT_ET_TRY(memory_.check(to, size, device, "destination"));
      if ((from_host || to_host) && !pageable) {
        TRT_ET_TRY(memory_.check(from_host ? from : to, size, SimMemory::kPinned, "pinned memory"));
      }
      std::memmove(to, from, size);
      return Status{};
    });
  });
}

Status SimulatedApi::zero(void* to, size_t size, Stream stream) {
  return call("zero", stream, [&](const SimStreamPtr& queue) -> Status {
    const int device = queue->device();
    TRT_ET_TRY(memory_.check(to, size, device, "destination"));
    return streams_.enqueue(*queue, [this, to, size, device] {
      TRT_ET_TRY(memory_.check(to, size, device, "destination"));
      std::memset(to, 0, size);
      return Status{};
    });
  });
}

Status SimulatedApi::copy_peer(void* to, int to_device, const void* from, int from_device,
                               size_t size, Stream stream) {
  return call("copy_peer", stream, [&](const SimStreamPtr& queue) -> Status {
    const auto check = [this, to, to_device, from, from_device, size] {
      TRT_ET_TRY(memory_.check(from, size, from_device, "source"));
      return memory_.check(to, size, to_device, "destination");
    };
    TRT_ET_TRY(check());
    count_copy(kPeer, size);
    return streams_.enqueue(*queue, [check, to, from, size] {
      TRT_ET_TRY(check());
      std::memmove(to, from, size);
      return Status{};
    });
  });
}

Status SimulatedApi::create_stream(StreamKind kind, Stream* stream) {
  return call("create_stream", [&] { return *stream = streams_.add(t_device, kind), Status{}; });
}

Status SimulatedApi::destroy_stream(Stream stream) {
  return call_anyway("destroy_stream", [&] { return streams_.remove(stream); });
}

// CUDA reports failed work here, not work left undone.
Status SimulatedApi::synchronize_stream(Stream stream) {
  return call_anyway("synchronize_stream", [&]() -> Status {
    SimStreamPtr queue;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
    if (queue->breaks_capture()) {
      return {Error::InvalidState, "wait for a stream while it is captured"};
    }
    counters_.add(kSynchronizations);
    TRT_ET_TRY(streams_.join(*queue));
    return queue->synchronize();
  });
}

Status SimulatedApi::stream_device(Stream stream, int* device) {
  return call("stream_device", stream,
              [&](const SimStreamPtr& queue) { return *device = queue->device(), Status{}; });
}

Status SimulatedApi::is_captured(Stream stream, bool* captured) {
  return call("is_captured", stream,
              [&](const SimStreamPtr& queue) { return *captured = queue->captured(), Status{}; });
}

Status SimulatedApi::create_event(Event* event, bool) {
  return call("create_event", [&] { return *event = handles_.add_event(t_device), Status{}; });
}

Status SimulatedApi::destroy_event(Event event) {
  return call_anyway("destroy_event", [&] { return handles_.remove_event(event); });
}

Status SimulatedApi::record_event(Event event, Stream stream) {
  return call("record_event", stream, [&](const SimStreamPtr& queue) -> Status {
    TRT_ET_TRY(streams_.join(*queue));
    return handles_.record(event, *queue);
  });
}

Status SimulatedApi::wait_event(Stream stream, Event event) {
  return call("wait_event", stream, [&](const SimStreamPtr& queue) -> Status {
    SimMark mark;
    TRT_ET_TRY(handles_.find_mark(event, &mark));
    if (mark.stream == nullptr) return {};
    if (mark.captured != queue->captured()) {
      (void)queue->breaks_capture();
      return {Error::InvalidState, "a stream waits for work on the other side of a capture"};
    }
    if (mark.stream == queue) return {};
    return streams_.enqueue(*queue, [mark] { return mark.stream->run_until(mark.position); });
  });
}

Status SimulatedApi::synchronize_event(Event event) {
  return call_anyway("synchronize_event", [&]() -> Status {
    SimMark mark;
    TRT_ET_TRY(handles_.find_mark(event, &mark));
    counters_.add(kSynchronizations);
    if (mark.captured) return {Error::InvalidState, "wait for an event of a captured stream"};
    return mark.stream == nullptr ? Status{} : mark.stream->run_until(mark.position);
  });
}

Status SimulatedApi::launch(Stream stream, std::function<Status()> function) {
  return call("launch", stream, [&](const SimStreamPtr& queue) {
    if (queue->device() != t_device) {
      return fail(Error::InvalidArgument, "launch on a stream of cuda:%d while cuda:%d is current",
                  queue->device(), t_device);
    }
    counters_.add(kLaunches);
    return streams_.enqueue(*queue, std::move(function));
  });
}

Status SimulatedApi::begin_capture(Stream stream, CaptureMode mode) {
  return call("begin_capture", stream,
              [&](const SimStreamPtr& queue) { return streams_.begin_capture(queue, mode); });
}

// Made to fail, it ends the capture all the same, and gives no graph.
Status SimulatedApi::end_capture(Stream stream, Graph* graph) {
  const Inside inside;
  Status failure = enter("end_capture");
  SimStreamPtr queue;
  std::shared_ptr<SimWork> work;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  TRT_ET_TRY(streams_.end_capture(*queue, &work));
  if (!failure.ok()) return failure;
  counters_.add(kCaptures);
  *graph = handles_.add_graph(std::move(work), queue->device());
  return {};
}

Status SimulatedApi::launch_graph(Graph graph, Stream stream) {
  return call("launch_graph", stream, [&](const SimStreamPtr& queue) -> Status {
    std::shared_ptr<SimWork> work;
    TRT_ET_TRY(handles_.find_graph(graph, queue->device(), &work));
    counters_.add(kGraphLaunches);
    return streams_.enqueue(*queue, [work] {
      for (const auto& item : *work) TRT_ET_TRY(item());
      return Status{};
    });
  });
}

Status SimulatedApi::destroy_graph(Graph graph) {
  return call_anyway("destroy_graph", [&] { return handles_.remove_graph(graph); });
}

Status SimulatedApi::call_of_fake(const char* what) {
  counters_.add(kFakeCalls);
  return count_down(what, "TensorRT");
}

Status SimulatedApi::check_memory(const void* pointer, size_t size, int device, const char* what) {
  const Inside inside;
  return memory_.check_kernel(pointer, size, device, what);
}

Status SimulatedApi::enter(const char* what) {
  counters_.add(kCalls);
  return count_down(what, "CUDA");
}

Status SimulatedApi::count_down(const char* what, const char* whose) {
  uint64_t left = fail_countdown_.load();
  while (left != 0 &&
         !fail_countdown_.compare_exchange_weak(left, left == 1 ? fail_again_.load() : left - 1)) {
  }
  if (left != 1) return {};
  counters_.add(kFailures);
  return fail(Error::Internal, "simulated failure of %s call %s", whose, what);
}

Status SimulatedApi::check_device(int device) const {
  if (device >= 0 && device < devices_) return {};
  return fail(Error::InvalidArgument, "cuda:%d does not exist; %d GPU(s) are simulated", device,
              devices_);
}

Status SimulatedApi::check_host(const void* pointer, bool* pageable) {
  PointerInfo info;
  TRT_ET_TRY(memory_.find(pointer, &info));
  *pageable = info.kind == MemoryKind::host;
  if (pointer != nullptr && info.kind != MemoryKind::device) return {};
  return fail(Error::InvalidArgument, "%p is no host memory", pointer);
}

void SimulatedApi::count_copy(size_t kind, size_t size) {
  counters_.add(kCopies + kind);
  counters_.add(kBytes + kind, size);
}

bool SimulatedApi::counter(std::string_view name, uint64_t* value) {
  for (size_t i = 0; i < kCounts; ++i) {
    if (name == kNames[i]) return *value = counters_.sum(i), true;
  }
  if (name == "live_graphs") return *value = handles_.live_graphs(), true;
  if (name == "live_events") return *value = handles_.live_events(), true;
  if (name == "live_streams") return *value = streams_.live(), true;
  return live_bytes(name, value);
}

// "live_bytes" of all devices, or "live_bytes:1" of one.
bool SimulatedApi::live_bytes(std::string_view name, uint64_t* value) {
  constexpr std::string_view kLiveBytes = "live_bytes";
  if (name.substr(0, kLiveBytes.size()) != kLiveBytes) return false;
  const std::string_view which = name.substr(kLiveBytes.size());
  if (which.empty()) {
    *value = 0;
    for (int device = 0; device < devices_; ++device) *value += memory_.live_bytes(device);
    return true;
  }
  int device = -1;
  const auto [end, error] = std::from_chars(which.data() + 1, which.data() + which.size(), device);
  const bool complete = error == std::errc() && end == which.data() + which.size();
  if (which[0] != ':' || !complete || device < 0 || device >= devices_) return false;
  *value = memory_.live_bytes(device);
  return true;
}

}  // namespace trt_et::cuda
