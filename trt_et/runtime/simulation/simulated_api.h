// N virtual GPUs on host memory, stricter than real ones: for tests, laptops and CI.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>

#include "cuda/cuda_api.h"
#include "sim_counters.h"
#include "sim_handles.h"
#include "sim_memory.h"
#include "sim_streams.h"

namespace trt_et::cuda {

inline thread_local int t_device = 0;  // the current one
inline thread_local int t_inside = 0;  // how many Inside there are

// The simulator's own heap allocations are not the delegate's.
struct Inside {
  Inside() { ++t_inside; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { --t_inside; }
};

// Their names are in simulated_api.cpp.
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

class SimulatedApi final : public Api {
 public:
  explicit SimulatedApi(int devices);
  bool simulated() const override { return true; }
  Status device_count(int* count) override;
  Status device_info(int device, DeviceInfo* info) override;
  Status current_device(int* device) override;
  // As cudaSetDevice() does, which is a call of programs and not of ours.
  Status set_device(int device);
  Status enter_device(int device, Entered* entered) override;
  Status leave_device(const Entered& entered) override;
  Status free_memory(size_t* bytes) override;
  Status allocate(size_t size, void** pointer) override;
  Status release(void* pointer) override;
  Status allocate_pinned(size_t size, void** pointer) override;
  Status release_pinned(void* pointer) override;
  // As cudaMallocManaged() does; release() frees it.
  Status allocate_managed(size_t size, void** pointer);
  Status pointer_info(const void* pointer, PointerInfo* info) override;
  Status copy(void* to, const void* from, size_t size, CopyKind kind, Stream stream) override;
  Status zero(void* to, size_t size, Stream stream) override;
  Status copy_peer(void* to, int to_device, const void* from, int from_device, size_t size,
                   Stream stream) override;
  Status create_stream(StreamKind kind, Stream* stream) override;
  Status destroy_stream(Stream stream) override;
  Status synchronize_stream(Stream stream) override;
  Status stream_device(Stream stream, int* device) override;
  Status is_captured(Stream stream, bool* captured) override;
  Status create_event(Event* event, bool blocking) override;
  Status destroy_event(Event event) override;
  Status record_event(Event event, Stream stream) override;
  Status wait_event(Stream stream, Event event) override;
  Status synchronize_event(Event event) override;
  Status begin_capture(Stream stream, CaptureMode mode) override;
  Status end_capture(Stream stream, Graph* graph) override;
  Status launch_graph(Graph graph, Stream stream) override;
  Status destroy_graph(Graph graph) override;

  // Work for the host, run in a stream's order: the only kernels that there are.
  Status launch(Stream stream, std::function<Status()> function);

  // A call of a fake TensorRT: it may be made to fail like one of CUDA.
  Status call_of_fake(const char* what);
  // That a kernel of this GPU may use memory; `what` names it if not.
  Status check_memory(const void* pointer, size_t size, int device, const char* what);

  // See trt_et_counter(). False when there is no such.
  bool counter(std::string_view name, uint64_t* value);
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
  // One call, which may be made to fail.
  template <typename F>
  Status call(const char* what, F&& work);
  // The same with the stream of a handle.
  template <typename F>
  Status call(const char* what, Stream stream, F&& work);
  // A call that releases or waits: made to fail, it works all the same, as CUDA's do.
  template <typename F>
  Status call_anyway(const char* what, F&& work);
  Status enter(const char* what);
  Status allocate_on(int device, size_t size, void** pointer, bool managed);
  Status count_down(const char* what, const char* whose);
  Status check_device(int device) const;
  Status check_host(const void* pointer, bool* pageable);
  void count_copy(size_t kind, size_t size);
  bool live_bytes(std::string_view name, uint64_t* value);

  const int devices_;
  std::atomic<bool> integrated_{false};
  std::atomic<bool> pageable_access_{false};
  std::atomic<size_t> free_bytes_{size_t{1} << 40};
  SimCounters<kCounts> counters_;
  alignas(kCacheLine) std::atomic<uint64_t> fail_countdown_{0};
  std::atomic<uint64_t> fail_again_{0};
  SimMemory memory_;
  SimStreams streams_;
  SimHandles handles_;
};

// The object that trt_et_open_simulation() made; null before.
SimulatedApi* simulated_api();

}  // namespace trt_et::cuda
