// N virtual GPUs on host memory, stricter than real ones: for tests, laptops and CI.
#pragma once

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "cuda/cuda_api.h"
#include "sim_memory.h"
#include "sim_streams.h"

namespace trt_et::cuda {

inline thread_local int t_device = 0;                 // the current one
inline thread_local int t_inside = 0;                 // how many Inside there are
inline thread_local SimStream* t_captured = nullptr;  // by this thread

// The simulator's own heap allocations are not the delegate's.
struct Inside {
  Inside() { ++t_inside; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { --t_inside; }
};

enum Count : size_t {
  kMallocs,
  kFrees,
  kLaunches,
  kSynchronizations,
  kCalls,
  kCaptures,
  kGraphLaunches,
  kFakeCalls,
  kFailures,  // that were asked for
  kCopies,    // by CopyKind, then peer
  kBytes = kCopies + 4,
  kCounts = kBytes + 4
};

// Counters by their name.
inline constexpr const char* kCounterNames[] = {
    "mallocs",        "frees",      "launches",  "synchronizations", "calls",      "captures",
    "graph_launches", "fake_calls", "failures",  "copies_h2d",       "copies_d2h", "copies_d2d",
    "copies_peer",    "bytes_h2d",  "bytes_d2h", "bytes_d2d",        "bytes_peer"};
static_assert(std::size(kCounterNames) == kCounts);

// The event and graph handles that simulated CUDA has given out: any other is refused.
template <typename T>
class SimHandles {
 public:
  // `kind`: as messages call one of them.
  explicit SimHandles(const char* kind) : kind_(kind) {}

  void* add(std::shared_ptr<T> object) {
    const std::unique_lock<std::shared_mutex> lock(lock_);
    void* const handle = object.get();
    live_[handle] = std::move(object);
    return handle;
  }

  Status find(void* handle, std::shared_ptr<T>* object) {
    const std::shared_lock<std::shared_mutex> lock(lock_);
    const auto found = live_.find(handle);
    if (found == live_.end()) return unknown();
    *object = found->second;
    return {};
  }

  Status remove(void* handle) {
    const std::unique_lock<std::shared_mutex> lock(lock_);
    return live_.erase(handle) == 1 ? Status{} : unknown();
  }

  // Of leaks: what has been made and not destroyed.
  size_t live() {
    const std::shared_lock<std::shared_mutex> lock(lock_);
    return live_.size();
  }

 private:
  Status unknown() const {
    return fail(Error::InvalidArgument, "not %s of a simulated GPU", kind_);
  }

  const char* const kind_;
  std::shared_mutex lock_;
  std::unordered_map<void*, std::shared_ptr<T>> live_;
};

class SimulatedApi final : public Api {
 public:
  static constexpr int kMaxDevices = 16;

  // `named`: of a variable of the environment, the value or null.
  explicit SimulatedApi(const char* (*named)(const char*)) : variable(named) {
    const char* value = variable("TRT_ET_SIM_FAIL_AFTER");
    if (value != nullptr) fail_after(std::strtoull(value, nullptr, 10));
  }

  const char* (*const variable)(const char* name);
  // Up to kMaxDevices.
  void set_devices(int devices) { devices_ = devices; }

  bool simulated() const override { return true; }

  Status device_count(int* count) override {
    return call("device_count", [&] { return *count = devices_, Status{}; });
  }

  Status device_info(int device, DeviceInfo* info) override {
    return call("device_info", [&]() -> Status {
      TRT_ET_TRY(check_device(device));
      *info = DeviceInfo{"simulated GPU", 0, 0, integrated_, pageable_access_};
      return {};
    });
  }

  Status current_device(int* device) override {
    return call("current_device", [&] { return *device = t_device, Status{}; });
  }

  // As cudaSetDevice() does, which is a call of programs and not of ours.
  Status set_device(int device) {
    return call("set_device", [&]() -> Status {
      TRT_ET_TRY(check_device(device));
      t_device = device;
      return {};
    });
  }

  Status enter_device(int device, Entered* entered) override {
    return call("enter_device", [&]() -> Status {
      TRT_ET_TRY(check_device(device));
      *entered = {t_device != device, t_device};
      t_device = device;
      return {};
    });
  }

  Status leave_device(const Entered& entered) override {
    return call_anyway("leave_device", [&] { return t_device = entered.previous, Status{}; });
  }

  Status free_memory(size_t* bytes) override {
    return call("free_memory", [&] { return *bytes = free_bytes_, Status{}; });
  }

  Status allocate(size_t size, void** pointer) override {
    return call("allocate", [&] { return allocate_on(t_device, size, pointer, false); });
  }

  // As cudaMallocManaged() does; release() frees it.
  Status allocate_managed(size_t size, void** pointer) {
    return call("allocate_managed", [&] { return allocate_on(t_device, size, pointer, true); });
  }

  // As cudaHostAlloc() and cudaFreeHost() do, for tests.
  Status allocate_pinned(size_t size, void** pointer) {
    return call("allocate_pinned",
                [&] { return allocate_on(SimMemory::kPinned, size, pointer, false); });
  }

  Status release(void* pointer) override {
    return call_anyway("release", [&]() -> Status {
      if (pointer == nullptr) return {};
      TRT_ET_TRY(check_uncaptured("freeing memory"));
      PointerInfo info;
      if (memory_.find(pointer, &info).ok() && info.device >= 0) streams_.run_all(info.device);
      TRT_ET_TRY(memory_.release(pointer));
      count(kFrees);
      return {};
    });
  }

  Status release_pinned(void* pointer) {
    return call_anyway("release_pinned", [&]() -> Status {
      TRT_ET_TRY(check_uncaptured("freeing memory"));
      for (int device = 0; device < devices_; ++device) streams_.run_all(device);
      return memory_.release(pointer);
    });
  }

  Status pointer_info(const void* pointer, PointerInfo* info) override {
    return call("pointer_info", [&] { return memory_.find(pointer, info); });
  }

  Status copy(void* to, const void* from, size_t size, CopyKind kind, Stream stream) override {
    return call("copy", stream, [&](const SimStreamPtr& queue) -> Status {
      const bool from_host = kind == CopyKind::host_to_device;
      const bool to_host = kind == CopyKind::device_to_host;
      bool pageable = false;
      if (from_host || to_host) TRT_ET_TRY(check_host(from_host ? from : to, &pageable));
      if (pageable && queue->breaks_capture()) {
        return {Error::InvalidState, "copy of pageable memory while its stream is captured"};
      }
      const int device = queue->device();
      const auto check = [this, to, from, size, device, from_host, to_host, pageable]() -> Status {
        if (!from_host) TRT_ET_TRY(memory_.check(from, size, device, "source"));
        if (!to_host) TRT_ET_TRY(memory_.check(to, size, device, "destination"));
        if (pageable || (!from_host && !to_host)) return {};
        return memory_.check(from_host ? from : to, size, SimMemory::kPinned, "pinned memory");
      };
      // Pageable memory is read as late as CUDA may, too.
      TRT_ET_TRY(enqueue(*queue, check, [=] { std::memmove(to, from, size); }));
      count_copy(static_cast<size_t>(kind), size);
      return {};
    });
  }

  Status zero(void* to, size_t size, Stream stream) override {
    return call("zero", stream, [&](const SimStreamPtr& queue) -> Status {
      const auto check = [this, to, size, device = queue->device()] {
        return memory_.check(to, size, device, "destination");
      };
      return enqueue(*queue, check, [=] { std::memset(to, 0, size); });
    });
  }

  Status copy_peer(void* to, int to_device, const void* from, int from_device, size_t size,
                   Stream stream) override {
    return call("copy_peer", stream, [&](const SimStreamPtr& queue) -> Status {
      const auto check = [this, to, to_device, from, from_device, size]() -> Status {
        TRT_ET_TRY(memory_.check(from, size, from_device, "source"));
        return memory_.check(to, size, to_device, "destination");
      };
      TRT_ET_TRY(enqueue(*queue, check, [=] { std::memmove(to, from, size); }));
      count_copy(kPeer, size);
      return {};
    });
  }

  Status create_stream(StreamKind kind, Stream* stream) override {
    return call("create_stream", [&] { return *stream = streams_.add(t_device, kind), Status{}; });
  }

  Status destroy_stream(Stream stream) override {
    return call_anyway("destroy_stream", [&] { return streams_.remove(stream); });
  }

  // CUDA reports failed work here, not work left undone.
  Status synchronize_stream(Stream stream) override {
    return call_anyway("synchronize_stream", [&]() -> Status {
      SimStreamPtr queue;
      TRT_ET_TRY(streams_.find(stream, t_device, &queue));
      if (queue->breaks_capture()) {
        return {Error::InvalidState, "wait for a stream while it is captured"};
      }
      count(kSynchronizations);
      streams_.join(*queue);
      return queue->synchronize();
    });
  }

  Status stream_device(Stream stream, int* device, bool* green) override {
    *green = false;
    return call("stream_device", stream,
                [&](const SimStreamPtr& queue) { return *device = queue->device(), Status{}; });
  }

  Status is_captured(Stream stream, bool* captured) override {
    return call("is_captured", stream,
                [&](const SimStreamPtr& queue) { return *captured = queue->captured(), Status{}; });
  }

  Status create_event(Event* event, bool) override {
    return call("create_event", [&] {
      return *event = events_.add(std::make_shared<SimEvent>(t_device)), Status{};
    });
  }

  Status destroy_event(Event event) override {
    return call_anyway("destroy_event", [&] { return events_.remove(event); });
  }

  Status record_event(Event event, Stream stream) override {
    return call("record_event", stream, [&](const SimStreamPtr& queue) -> Status {
      std::shared_ptr<SimEvent> found;
      TRT_ET_TRY(events_.find(event, &found));
      if (found->device != queue->device()) {
        return fail(Error::InvalidArgument, "event of cuda:%d recorded on a stream of cuda:%d",
                    found->device, queue->device());
      }
      streams_.join(*queue);
      const std::lock_guard<std::mutex> lock(found->mutex);
      found->mark = queue->mark();
      return {};
    });
  }

  Status wait_event(Stream stream, Event event) override {
    return call("wait_event", stream, [&](const SimStreamPtr& queue) -> Status {
      SimMark mark;
      TRT_ET_TRY(find_mark(event, &mark));
      if (mark.stream == nullptr) return {};
      if (mark.captured != queue->captured()) {
        (void)queue->breaks_capture();
        return {Error::InvalidState, "a stream waits for work on the other side of a capture"};
      }
      if (mark.stream == queue) return {};
      streams_.enqueue(*queue, [mark] { return mark.stream->run_until(mark.position); });
      return {};
    });
  }

  Status synchronize_event(Event event) override {
    return call_anyway("synchronize_event", [&]() -> Status {
      SimMark mark;
      TRT_ET_TRY(find_mark(event, &mark));
      count(kSynchronizations);
      if (mark.captured) return {Error::InvalidState, "wait for an event of a captured stream"};
      return mark.stream == nullptr ? Status{} : mark.stream->run_until(mark.position);
    });
  }

  // Work for the host, run in a stream's order: the only kernels that there are.
  Status launch(Stream stream, std::function<Status()> function) {
    return call("launch", stream, [&](const SimStreamPtr& queue) {
      if (queue->device() != t_device) {
        return fail(Error::InvalidArgument,
                    "launch on a stream of cuda:%d while cuda:%d is current", queue->device(),
                    t_device);
      }
      count(kLaunches);
      streams_.enqueue(*queue, std::move(function));
      return Status{};
    });
  }

  Status begin_capture(Stream stream) override {
    return call("begin_capture", stream, [&](const SimStreamPtr& queue) -> Status {
      TRT_ET_TRY(queue->begin_capture());
      t_captured = queue.get();
      return {};
    });
  }

  // Made to fail, it ends the capture all the same, and gives no graph.
  Status end_capture(Stream stream, Graph* graph) override {
    const Inside inside;
    Status failure = enter("end_capture");
    SimStreamPtr queue;
    SimWork work;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
    t_captured = nullptr;
    TRT_ET_TRY(queue->end_capture(&work));
    if (!failure.ok()) return failure;
    count(kCaptures);
    *graph = graphs_.add(std::make_shared<SimGraph>(SimGraph{queue->device(), std::move(work)}));
    return {};
  }

  Status launch_graph(Graph graph, Stream stream) override {
    return call("launch_graph", stream, [&](const SimStreamPtr& queue) -> Status {
      std::shared_ptr<SimGraph> found;
      TRT_ET_TRY(graphs_.find(graph, &found));
      if (found->device != queue->device()) {
        return fail(Error::InvalidArgument, "graph of cuda:%d launched on cuda:%d", found->device,
                    queue->device());
      }
      count(kGraphLaunches);
      streams_.enqueue(*queue, [found]() -> Status {
        for (const auto& item : found->work) TRT_ET_TRY(item());
        return {};
      });
      return {};
    });
  }

  Status destroy_graph(Graph graph) override {
    return call_anyway("destroy_graph", [&] { return graphs_.remove(graph); });
  }

  // A call of a fake TensorRT: it may be made to fail like one of CUDA.
  Status call_of_fake(const char* what) {
    count(kFakeCalls);
    return count_down(what, "TensorRT");
  }

  // That a kernel of this GPU may use memory; `what` names it if not.
  Status check_memory(const void* pointer, size_t size, int device, const char* what) {
    const Inside inside;
    return memory_.check_kernel(pointer, size, device, what);
  }

  // See trt_et_counter(). False when there is no such.
  bool counter(std::string_view name, uint64_t* value) {
    for (size_t i = 0; i < kCounts; ++i) {
      if (name == kCounterNames[i]) return *value = counted(i), true;
    }
    if (name == "live_graphs") return *value = graphs_.live(), true;
    if (name == "live_events") return *value = events_.live(), true;
    if (name == "live_streams") return *value = streams_.live(), true;
    if (name == "kept_streams") return *value = streams_.kept(), true;
    return live_bytes(name, value);
  }

  // See trt_et_sim_fail_after().
  uint64_t fail_after(uint64_t n) {
    if (n == 0) fail_again_ = 0;
    return fail_countdown_.exchange(n);
  }
  // The GPUs share their memory with the host, and reach its pageable memory, too.
  void set_integrated(bool integrated, bool pageable_access = false) {
    integrated_ = integrated;
    pageable_access_ = pageable_access;
    memory_.set_integrated(integrated, pageable_access);
  }
  void set_free_memory(size_t bytes) { free_bytes_ = bytes; }
  // See trt_et_sim_fail_again().
  void fail_again(uint64_t n) { fail_again_ = n; }

 private:
  struct SimEvent {
    explicit SimEvent(int index) : device(index) {}
    const int device;
    std::mutex mutex;  // of the mark
    SimMark mark;
  };
  // A graph in a queue is kept: destroying the handle is safe.
  struct SimGraph {
    int device;
    SimWork work;
  };

  static constexpr size_t kPeer = 3;  // behind those of CopyKind

  // One call, which may be made to fail.
  template <typename F>
  Status call(const char* what, F&& work) {
    const Inside inside;
    TRT_ET_TRY(enter(what));
    return work();
  }

  // The same with the stream of a handle.
  template <typename F>
  Status call(const char* what, Stream stream, F&& work) {
    return call(what, [&]() -> Status {
      SimStreamPtr queue;
      TRT_ET_TRY(streams_.find(stream, t_device, &queue));
      return work(queue);
    });
  }

  // A call that releases or waits: made to fail, it works all the same, as CUDA's do.
  template <typename F>
  Status call_anyway(const char* what, F&& work) {
    const Inside inside;
    Status failure = enter(what);
    Status status = work();
    return status.ok() ? failure : status;
  }

  // What it uses is checked now, and again when it runs.
  template <typename Check, typename Work>
  Status enqueue(SimStream& queue, const Check& check, const Work& work) {
    TRT_ET_TRY(check());
    streams_.enqueue(queue, [check, work]() -> Status {
      TRT_ET_TRY(check());
      return work(), Status{};
    });
    return {};
  }

  // The point that the event stands for; its stream is null before the first record.
  Status find_mark(Event event, SimMark* mark) {
    std::shared_ptr<SimEvent> found;
    TRT_ET_TRY(events_.find(event, &found));
    const std::lock_guard<std::mutex> lock(found->mutex);
    *mark = found->mark;
    return {};
  }

  // Of calls that are refused, and end the capture without a graph, while this thread captures.
  static Status check_uncaptured(const char* what) {
    if (t_captured == nullptr) return {};
    (void)t_captured->breaks_capture();
    return fail(Error::InvalidState, "%s while a stream is captured", what);
  }

  Status allocate_on(int device, size_t size, void** pointer, bool managed) {
    TRT_ET_TRY(check_uncaptured("allocation"));
    TRT_ET_TRY(memory_.allocate(device, size, pointer, managed));
    if (device != SimMemory::kPinned) count(kMallocs);
    return {};
  }

  Status enter(const char* what) {
    count(kCalls);
    return count_down(what, "CUDA");
  }

  Status count_down(const char* what, const char* whose) {
    uint64_t left = fail_countdown_.load();
    while (left != 0 && !fail_countdown_.compare_exchange_weak(
                            left, left == 1 ? fail_again_.load() : left - 1)) {
    }
    if (left != 1) return {};
    count(kFailures);
    return fail(Error::Internal, "simulated failure of %s call %s", whose, what);
  }

  Status check_device(int device) const {
    if (device >= 0 && device < devices_) return {};
    return fail(Error::InvalidArgument, "cuda:%d does not exist; %d GPU(s) are simulated", device,
                devices_.load());
  }

  Status check_host(const void* pointer, bool* pageable) {
    PointerInfo info;
    TRT_ET_TRY(memory_.find(pointer, &info));
    *pageable = info.kind == MemoryKind::host;
    if (pointer != nullptr && info.kind != MemoryKind::device) return {};
    return fail(Error::InvalidArgument, "%p is no host memory", pointer);
  }

  void count_copy(size_t kind, size_t size) {
    count(kCopies + kind);
    count(kBytes + kind, size);
  }

  // "live_bytes" of all devices, or "live_bytes:1" of one.
  bool live_bytes(std::string_view name, uint64_t* value) {
    uint64_t all = 0;
    for (int device = 0; device < devices_; ++device) {
      const uint64_t bytes = memory_.live_bytes(device);
      if (name == "live_bytes:" + std::to_string(device)) return *value = bytes, true;
      all += bytes;
    }
    if (name != "live_bytes") return false;
    *value = all;
    return true;
  }

  void count(size_t which, uint64_t n = 1) {
    counts_[which].fetch_add(n, std::memory_order_relaxed);
  }

  uint64_t counted(size_t which) const { return counts_[which].load(std::memory_order_relaxed); }

  std::atomic<int> devices_{0};
  std::atomic<bool> integrated_{false};
  std::atomic<bool> pageable_access_{false};
  std::atomic<size_t> free_bytes_{size_t{1} << 40};
  std::array<std::atomic<uint64_t>, kCounts> counts_{};
  std::atomic<uint64_t> fail_countdown_{0};
  std::atomic<uint64_t> fail_again_{0};
  SimMemory memory_;
  SimStreams streams_{kMaxDevices};
  SimHandles<SimEvent> events_{"an event"};
  SimHandles<SimGraph> graphs_{"a graph"};
};

// The object that trt_et_open_simulation() made; null before.
SimulatedApi* simulated_api();

}  // namespace trt_et::cuda
