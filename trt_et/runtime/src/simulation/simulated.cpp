// N virtual GPUs on host memory, stricter than real ones: for tests, laptops and CI. Never chosen
// unless asked for.
#include "simulated.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "sim_handles.h"
#include "sim_memory.h"
#include "sim_streams.h"
#include "sim_threads.h"

namespace trt_et::cuda {
namespace {

thread_local int t_device = 0;
thread_local int t_inside = 0;

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
  kDoubleCalls,
  kCopies,  // by CopyKind, then peer
  kBytes = kCopies + 4,
  kCounts = kBytes + 4
};

constexpr size_t kPeer = 3;

class SimulatedApi final : public Api {
 public:
  explicit SimulatedApi(int devices) : devices_(devices), streams_(devices) {
    const char* value = std::getenv("TRT_ET_SIM_FAIL_AFTER");
    if (value != nullptr) fail_after(std::strtoull(value, nullptr, 10));
  }

  bool simulated() const override { return true; }

  Status device_count(int* count) override {
    TRT_ET_TRY(enter("device_count"));
    *count = devices_;
    return {};
  }

  Status device_info(int device, DeviceInfo* info) override {
    TRT_ET_TRY(enter("device_info"));
    TRT_ET_TRY(check_device(device));
    *info = DeviceInfo{"simulated GPU", 0, 0, false};
    return {};
  }

  Status current_device(int* device) override {
    TRT_ET_TRY(enter("current_device"));
    *device = t_device;
    return {};
  }

  Status set_device(int device) override {
    TRT_ET_TRY(enter("set_device"));
    TRT_ET_TRY(check_device(device));
    t_device = device;
    return {};
  }

  Status allocate(size_t size, void** pointer) override {
    TRT_ET_TRY(enter("allocate"));
    TRT_ET_TRY(streams_.check_unsafe("allocation"));
    TRT_ET_TRY(memory_.allocate(t_device, size, pointer));
    counters_.add(kMallocs);
    return {};
  }

  Status release(void* pointer) override {
    // Made to fail, it frees all the same, as CUDA's calls that release do.
    Status failure = enter("release");
    if (pointer == nullptr) return failure;
    TRT_ET_TRY(streams_.check_unsafe("freeing memory"));
    const Inside inside;
    PointerInfo info;
    if (memory_.find(pointer, &info).ok() && info.device >= 0) streams_.run_all(info.device);
    int device = 0;
    TRT_ET_TRY(memory_.release(pointer, &device));
    counters_.add(kFrees);
    return failure;
  }

  Status allocate_pinned(size_t size, void** pointer) override {
    TRT_ET_TRY(enter("allocate_pinned"));
    TRT_ET_TRY(streams_.check_unsafe("allocation"));
    return memory_.allocate(SimMemory::kPinned, size, pointer);
  }

  Status release_pinned(void* pointer) override {
    Status failure = enter("release_pinned");
    TRT_ET_TRY(streams_.check_unsafe("freeing memory"));
    const Inside inside;
    for (int device = 0; device < devices_; ++device) streams_.run_all(device);
    int device = 0;
    TRT_ET_TRY(memory_.release(pointer, &device));
    return failure;
  }

  Status pointer_info(const void* pointer, PointerInfo* info) override {
    TRT_ET_TRY(enter("pointer_info"));
    return memory_.find(pointer, info);
  }

  Status copy(void* to, const void* from, size_t size, CopyKind kind, Stream stream) override {
    const Inside inside;
    TRT_ET_TRY(enter("copy"));
    SimStreamPtr queue;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
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
  }

  Status zero(void* to, size_t size, Stream stream) override {
    const Inside inside;
    TRT_ET_TRY(enter("zero"));
    SimStreamPtr queue;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
    const int device = queue->device();
    TRT_ET_TRY(memory_.check(to, size, device, "destination"));
    return streams_.enqueue(*queue, [this, to, size, device] {
      TRT_ET_TRY(memory_.check(to, size, device, "destination"));
      std::memset(to, 0, size);
      return Status{};
    });
  }

  Status copy_peer(void* to, int to_device, const void* from, int from_device, size_t size,
                   Stream stream) override {
    const Inside inside;
    TRT_ET_TRY(enter("copy_peer"));
    SimStreamPtr queue;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
    TRT_ET_TRY(memory_.check(from, size, from_device, "source"));
    TRT_ET_TRY(memory_.check(to, size, to_device, "destination"));
    count_copy(kPeer, size);
    return streams_.enqueue(*queue, [this, to, to_device, from, from_device, size] {
      TRT_ET_TRY(memory_.check(from, size, from_device, "source"));
      TRT_ET_TRY(memory_.check(to, size, to_device, "destination"));
      std::memmove(to, from, size);
      return Status{};
    });
  }

  Status create_stream(StreamKind kind, Stream* stream) override {
    TRT_ET_TRY(enter("create_stream"));
    *stream = streams_.add(t_device, kind);
    return {};
  }

  Status destroy_stream(Stream stream) override {
    Status failure = enter("destroy_stream");
    SimStreamPtr queue;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
    streams_.remove(stream);
    return failure;
  }

  Status synchronize_stream(Stream stream) override {
    // Made to fail, it waits all the same: CUDA reports failed work here, not work left undone.
    const Inside inside;
    Status failure = enter("synchronize_stream");
    SimStreamPtr queue;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
    if (queue->breaks_capture()) {
      return {Error::InvalidState, "wait for a stream while it is captured"};
    }
    counters_.add(kSynchronizations);
    TRT_ET_TRY(streams_.join(*queue));
    Status status = queue->synchronize();
    return failure.ok() ? status : failure;
  }

  Status stream_device(Stream stream, int* device) override {
    TRT_ET_TRY(enter("stream_device"));
    SimStreamPtr queue;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
    *device = queue->device();
    return {};
  }

  Status create_event(Event* event) override {
    TRT_ET_TRY(enter("create_event"));
    *event = handles_.add_event(t_device);
    return {};
  }

  Status destroy_event(Event event) override {
    Status failure = enter("destroy_event");
    TRT_ET_TRY(handles_.remove_event(event));
    return failure;
  }

  Status record_event(Event event, Stream stream) override {
    TRT_ET_TRY(enter("record_event"));
    SimStreamPtr queue;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
    TRT_ET_TRY(streams_.join(*queue));
    return handles_.record(event, *queue);
  }

  Status wait_event(Stream stream, Event event) override {
    const Inside inside;
    TRT_ET_TRY(enter("wait_event"));
    SimStreamPtr queue;
    SimMark mark;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
    TRT_ET_TRY(handles_.find_mark(event, &mark));
    if (mark.stream == nullptr || mark.stream == queue) return {};
    return streams_.enqueue(*queue, [mark] { return mark.stream->run_until(mark.position); });
  }

  Status synchronize_event(Event event) override {
    const Inside inside;
    Status failure = enter("synchronize_event");
    SimMark mark;
    TRT_ET_TRY(handles_.find_mark(event, &mark));
    counters_.add(kSynchronizations);
    Status status = mark.stream == nullptr ? Status{} : mark.stream->run_until(mark.position);
    return failure.ok() ? status : failure;
  }

  Status launch_host(Stream stream, HostFunction function) override {
    const Inside inside;
    TRT_ET_TRY(enter("launch_host"));
    SimStreamPtr queue;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
    if (queue->device() != t_device) {
      return fail(Error::InvalidArgument, "launch on a stream of cuda:%d while cuda:%d is current",
                  queue->device(), t_device);
    }
    counters_.add(kLaunches);
    return streams_.enqueue(*queue, std::move(function));
  }

  Status begin_capture(Stream stream, CaptureMode mode) override {
    const Inside inside;
    TRT_ET_TRY(enter("begin_capture"));
    SimStreamPtr queue;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
    return streams_.begin_capture(queue, mode);
  }

  Status end_capture(Stream stream, Graph* graph) override {
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

  Status launch_graph(Graph graph, Stream stream) override {
    const Inside inside;
    TRT_ET_TRY(enter("launch_graph"));
    SimStreamPtr queue;
    std::shared_ptr<SimWork> work;
    TRT_ET_TRY(streams_.find(stream, t_device, &queue));
    TRT_ET_TRY(handles_.find_graph(graph, queue->device(), &work));
    counters_.add(kGraphLaunches);
    return streams_.enqueue(*queue, [work] {
      for (const auto& item : *work) TRT_ET_TRY(item());
      return Status{};
    });
  }

  Status destroy_graph(Graph graph) override {
    Status failure = enter("destroy_graph");
    TRT_ET_TRY(handles_.remove_graph(graph));
    return failure;
  }

  // A call of a double of TensorRT: it may be made to fail like one of CUDA.
  Status call_of_double(const char* what) {
    counters_.add(kDoubleCalls);
    return count_down(what, "TensorRT");
  }

  Status check_memory(const void* pointer, size_t size, int device) {
    return memory_.check(pointer, size, device, "TensorRT's argument");
  }

  bool counter(std::string_view name, uint64_t* value) {
    const std::pair<std::string_view, uint64_t> all[] = {
        {"captures", counters_.sum(kCaptures)},
        {"graph_launches", counters_.sum(kGraphLaunches)},
        {"double_calls", counters_.sum(kDoubleCalls)},
        {"live_graphs", handles_.live_graphs()},
        {"live_events", handles_.live_events()},
        {"live_streams", streams_.live()}};
    for (const auto& [known, found] : all) {
      if (name == known) return *value = found, true;
    }
    return false;
  }

  uint64_t fail_after(uint64_t n) { return fail_countdown_.exchange(n); }

  void stats(trt_et_sim_stats* out) {
    *out = trt_et_sim_stats{};
    out->mallocs = counters_.sum(kMallocs);
    out->frees = counters_.sum(kFrees);
    out->launches = counters_.sum(kLaunches);
    out->synchronizations = counters_.sum(kSynchronizations);
    out->calls = counters_.sum(kCalls);
    uint64_t* const copies[] = {&out->copies_h2d, &out->copies_d2h, &out->copies_d2d,
                                &out->copies_peer};
    uint64_t* const bytes[] = {&out->bytes_h2d, &out->bytes_d2h, &out->bytes_d2d, &out->bytes_peer};
    for (size_t kind = 0; kind < 4; ++kind) {
      *copies[kind] = counters_.sum(kCopies + kind);
      *bytes[kind] = counters_.sum(kBytes + kind);
    }
    for (int device = 0; device < devices_; ++device) {
      out->live_bytes[device] = memory_.live_bytes(device);
    }
  }

 private:
  Status enter(const char* what) {
    counters_.add(kCalls);
    return count_down(what, "CUDA");
  }

  Status count_down(const char* what, const char* whose) {
    uint64_t left = fail_countdown_.load();
    while (left != 0 && !fail_countdown_.compare_exchange_weak(left, left - 1)) {
    }
    if (left != 1) return {};
    return fail(Error::Internal, "simulated failure of %s call %s", whose, what);
  }

  Status check_device(int device) const {
    if (device >= 0 && device < devices_) return {};
    return fail(Error::InvalidArgument, "cuda:%d does not exist; %d GPU(s) are simulated", device,
                devices_);
  }

  Status check_host(const void* pointer, bool* pageable) {
    PointerInfo info;
    TRT_ET_TRY(memory_.find(pointer, &info));
    *pageable = info.kind == MemoryKind::host;
    if (pointer != nullptr && info.kind != MemoryKind::device) return {};
    return fail(Error::InvalidArgument, "%p is no host memory", pointer);
  }

  void count_copy(size_t kind, size_t size) {
    counters_.add(kCopies + kind);
    counters_.add(kBytes + kind, size);
  }

  const int devices_;
  SimCounters<kCounts> counters_;
  alignas(kCacheLine) std::atomic<uint64_t> fail_countdown_{0};
  SimMemory memory_;
  SimStreams streams_;
  SimHandles handles_;
};

std::atomic<SimulatedApi*> g_simulated{nullptr};

thread_local char t_told[kMaxErrorText + 1] = "";

int told(Status status) {
  if (!status.ok()) std::snprintf(t_told, sizeof t_told, "%s", status.text.c_str());
  return static_cast<int>(status.error);
}

}  // namespace

Api* make_simulated_api(int devices) {
  auto* api = new SimulatedApi(devices);
  g_simulated = api;
  return api;
}

bool simulator_stats(trt_et_sim_stats* out) {
  SimulatedApi* api = g_simulated;
  if (api == nullptr) return false;
  api->stats(out);
  return true;
}

bool simulator_counter(const char* name, uint64_t* value) {
  SimulatedApi* api = g_simulated;
  return api != nullptr && api->counter(name, value);
}

bool inside_simulator() { return t_inside > 0; }

const trt_et_sim_services& simulator_services() {
  // Exceptions of a double end here: the heap is all that can fail in these.
  static const trt_et_sim_services services = {
      [](const char* what) { return told(g_simulated.load()->call_of_double(what)); },
      [](int* device) { return told(g_simulated.load()->current_device(device)); },
      [](size_t size, void** pointer) { return told(g_simulated.load()->allocate(size, pointer)); },
      [](void* pointer) { return told(g_simulated.load()->release(pointer)); },
      [](const void* pointer, size_t size, int device) {
        return told(g_simulated.load()->check_memory(pointer, size, device));
      },
      [](void* stream, int (*run)(void*), void (*drop)(void*), void* argument) {
        const Inside inside;
        const std::shared_ptr<void> owned(argument, drop);
        return told(g_simulated.load()->launch_host(stream, [run, owned]() -> Status {
          const int code = run(owned.get());
          if (code == 0) return {};
          return fail(static_cast<Error>(code), "simulated TensorRT failed: %s", t_told);
        }));
      },
      [](int change) { t_inside += change; }};
  return services;
}

uint64_t simulator_fail_after(uint64_t n) {
  SimulatedApi* api = g_simulated;
  return api == nullptr ? 0 : api->fail_after(n);
}

}  // namespace trt_et::cuda
