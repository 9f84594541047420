// The one table through which all of trt-et reaches CUDA: the real runtime library, or simulated
// GPUs on host memory (simulation_library.h). Chosen once, at first use: "real", unless TRT_ET_CUDA
// or choose() asks for "simulated:N", or for "auto:N": simulated GPUs where there is no real one.
// If neither asks for anything, a reference engine gets simulated ones there, too.
//
// Every call is thread-safe. Streams, events and memory belong to the device that was current when
// they were made; DeviceGuard makes one current.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/status.h"

namespace trt_et::cuda {

using Stream = void*;
using Event = void*;
using Graph = void*;  // ready to be launched

// CUDA's own handles of the default streams: that of the current device, and that of the calling
// thread and the current device. A null stream is the legacy one, too.
inline const Stream kLegacyStream = reinterpret_cast<Stream>(1);
inline const Stream kPerThreadStream = reinterpret_cast<Stream>(2);

// Work of a blocking stream and work of the legacy stream of its device run in the order in which
// they were queued.
enum class StreamKind { blocking, non_blocking };

enum class MemoryKind { host, pinned, device, managed };

struct PointerInfo {
  MemoryKind kind = MemoryKind::host;
  int device = -1;      // -1 for host memory
  bool mapped = false;  // pinned memory that the GPU reaches at the same address
};

struct DeviceInfo {
  std::string name;
  int major = 0;
  int minor = 0;
  bool integrated = false;  // shares its memory with the host, as a Jetson does
  // Reads and writes pageable memory through the host's page tables, as Thor does.
  bool pageable_access = false;

  // "9.0"
  std::string capability() const { return std::to_string(major) + "." + std::to_string(minor); }
};

// What leave_device() needs to restore a thread.
struct Entered {
  bool changed = false;
  int previous = -1;
};

enum class CopyKind { host_to_device, device_to_host, device_to_device };

class Api {
 public:
  virtual ~Api() = default;

  virtual bool simulated() const = 0;
  virtual Status device_count(int* count) = 0;
  virtual Status device_info(int device, DeviceInfo* info) = 0;
  virtual Status current_device(int* device) = 0;
  // Makes the device's primary context current, and no context on another GPU. leave_device()
  // restores exactly what the thread had: a context of the caller's own, or none.
  virtual Status enter_device(int device, Entered* entered) = 0;
  virtual Status leave_device(const Entered& entered) = 0;
  // Bytes of free memory on the current device.
  virtual Status free_memory(size_t* bytes) = 0;

  virtual Status allocate(size_t size, void** pointer) = 0;
  // Waits for everything on the memory's device. Fails in a thread that captures a stream.
  virtual Status release(void* pointer) = 0;
  // What a pointer is; interior pointers are fine, unknown ones are host memory.
  virtual Status pointer_info(const void* pointer, PointerInfo* info) = 0;

  // Host memory and a copy's destination must stay until the stream has been synchronised: CUDA
  // does not say that pageable memory has been read when the call returns.
  virtual Status copy(void* to, const void* from, size_t size, CopyKind kind, Stream stream) = 0;
  // Writes zeros over memory of the stream's device.
  virtual Status zero(void* to, size_t size, Stream stream) = 0;
  virtual Status copy_peer(void* to, int to_device, const void* from, int from_device, size_t size,
                           Stream stream) = 0;

  virtual Status create_stream(StreamKind kind, Stream* stream) = 0;
  virtual Status destroy_stream(Stream stream) = 0;
  virtual Status synchronize_stream(Stream stream) = 0;

  // The device of a stream that is no default stream, and whether its context is a green one. Fails
  // where that is neither the primary one of its device nor a part of it: our work cannot go there.
  virtual Status stream_device(Stream stream, int* device, bool* green) = 0;
  // Whether work that is queued on the stream is recorded for a graph.
  virtual Status is_captured(Stream stream, bool* captured) = 0;

  // `blocking`: a thread that waits for it sleeps instead of spinning.
  virtual Status create_event(Event* event, bool blocking = false) = 0;
  virtual Status destroy_event(Event event) = 0;
  virtual Status record_event(Event event, Stream stream) = 0;
  virtual Status wait_event(Stream stream, Event event) = 0;
  virtual Status synchronize_event(Event event) = 0;

  // What the calling thread queues on the stream between these two is recorded instead of run.
  // Waiting, allocating and copying pageable memory are not possible for it meanwhile, and nothing
  // may use the legacy stream while a blocking stream is captured.
  virtual Status begin_capture(Stream stream) = 0;
  // Ends it, also after a failure in between, and then gives no graph.
  virtual Status end_capture(Stream stream, Graph* graph) = 0;
  virtual Status launch_graph(Graph graph, Stream stream) = 0;
  virtual Status destroy_graph(Graph graph) = 0;
};

// Fixes the mode before the first use. Fails for an unknown mode, or when another one is in use;
// one that found no GPU is not.
Status choose(const char* mode);

// The chosen implementation, which has a GPU; the first call chooses. It lives until the process
// ends. The failure of a first call stays until choose(): a driver does not appear later.
Status access(Api** api);

// The same for memory that may become a reference engine's: of a simulated GPU if there is no real
// one and nobody has chosen a mode.
Status access_or_simulate(Api** api);
// The same for a reference engine. From then on, access() gives the simulated GPUs, too: until
// then, what is asked about GPUs is answered as if there were none.
Status access_for_reference(Api** api);
using Access = Status (*)(Api** api);

// "real", "simulated:N", or "" before the first use.
std::string chosen_mode();
// Why that has no GPU; "" if it has, and before the first use.
std::string problem();

// What to try where there is no GPU, for the end of a message; "" where it has been tried.
std::string remedy();

// Number of devices of the chosen implementation; fails when that is none.
Status usable_devices(Api** api, int* count, Access access = cuda::access);

// The failure, or that the current GPU is lost to the process: TensorRT then refuses every engine,
// and has other reasons for it.
Status unless_lost(Api& api, Status failure);

// Restores what was current, on every way out.
class DeviceGuard {
 public:
  explicit DeviceGuard(Api& api) : api_(api) {}
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() { leave(); }

  Status enter(int device);

 private:
  void leave();

  Api& api_;
  int device_ = -1;
  Entered entered_;
};

// Whether this process is a child that was forked after its parent had begun to use real GPUs.
// Nothing of CUDA or TensorRT is called there, and what was inherited is left as it is: locks may
// be held by threads that are not there.
bool is_forked();
// The refusal of such a child.
Status check_not_forked();

// The libraries of NVIDIA's unload themselves while the process ends, in the opposite order in
// which they were opened. Call this when one has been opened and used: from the moment on at which
// the first of them may be gone, is_ending() is true, and what is left is not freed any more. In a
// forked child it is always true.
void note_opened_library();
bool is_ending();

// CUDA itself. Fails when there is no driver or no library.
Status make_real_api(Api** api);

}  // namespace trt_et::cuda
