// The streams and events of the simulated GPUs. Work that is queued runs only when something waits
// for it: a missing wait shows as poisoned data, every time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cuda/cuda_api.h"

namespace trt_et::cuda {

class SimStream;

// Recorded work.
using SimWork = std::vector<std::function<Status()>>;

// A point in a stream's queue, as an event records it.
struct SimMark {
  std::shared_ptr<SimStream> stream;
  uint64_t position = 0;
  bool captured = false;  // the stream was, and nobody can wait for the event
};

class SimStream : public std::enable_shared_from_this<SimStream> {
 public:
  enum class Kind { legacy, blocking, non_blocking };

  SimStream(int device, Kind kind) : device_(device), kind_(kind) {}

  int device() const { return device_; }
  Kind kind() const { return kind_; }

  // Appends work; it runs in order, later. Or records it, between the next two.
  void enqueue(std::function<Status()> work);

  // Makes what is queued from now on come behind `other` up to `position`, unless it does already.
  void follow(const std::shared_ptr<SimStream>& other, uint64_t position);

  Status begin_capture();
  // What was recorded, or why there is none.
  Status end_capture(SimWork* work);
  bool captured();
  // Whether this stream records now; what cannot be recorded breaks the capture for good.
  bool breaks_capture();

  // How much has been queued, ever.
  uint64_t position() const { return enqueued_.load(std::memory_order_acquire); }

  // The point behind everything that is queued now.
  SimMark mark();

  // Whether all that was ever queued has run.
  bool idle();

  // Runs the queue up to `position`. Once an item has failed the rest is dropped, and this and
  // every later call return the failure until synchronize() clears it. Threads may call it at the
  // same time: one runs the items, the others wait for it.
  Status run_until(uint64_t position);

  // Runs everything queued, and clears a failure while returning it.
  Status synchronize();

 private:
  Status run_one(std::unique_lock<std::mutex>& lock);

  static uint64_t next_number() {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }

  const int device_;
  const Kind kind_;
  const uint64_t number_ = next_number();
  std::mutex mutex_;
  std::condition_variable progress_;
  std::deque<std::function<Status()>> queue_;
  std::atomic<uint64_t> enqueued_{0};
  uint64_t completed_ = 0;
  bool running_ = false;
  std::thread::id runner_;
  Status failure_;
  // Up to which position of which stream (by number) this one has been put behind.
  std::unordered_map<uint64_t, uint64_t> followed_;
  std::optional<SimWork> recorded_;
  bool broken_ = false;
};

// All of them by handle, and what the default streams imply.
using SimStreamPtr = std::shared_ptr<SimStream>;

class SimStreams {
 public:
  explicit SimStreams(int devices);

  // A handle that was destroyed last is given out first, as CUDA may do.
  Stream add(int device, StreamKind kind);
  // kLegacyStream, null and kPerThreadStream mean those of `current_device`.
  Status find(Stream stream, int current_device, SimStreamPtr* out);
  // What is queued on it is run all the same, but nothing waits for that.
  Status remove(Stream stream);
  size_t live();
  // Streams that are gone to their users, or may be.
  size_t kept();

  // Appends what the default streams imply: work of the legacy stream comes behind all work of the
  // device's blocking streams, and before all that they get later.
  void join(SimStream& stream);
  void enqueue(SimStream& stream, std::function<Status()> work);

  // As cudaFree does: waits for everything on the device. Failures stay with their streams.
  void run_all(int device);

 private:
  SimStreamPtr per_thread(int device);
  static void forget_idle(std::vector<SimStreamPtr>& streams, long owners);
  std::vector<SimStreamPtr> blocking(int device);

  std::vector<SimStreamPtr> legacy_;  // by device
  // Shared: what there is; unique: to add and to remove.
  std::shared_mutex lock_;
  std::unordered_map<Stream, SimStreamPtr> by_handle_;
  std::vector<SimStreamPtr> per_thread_;
  std::vector<SimStreamPtr> removed_;           // with work left
  std::vector<std::unique_ptr<char>> handles_;  // addresses that are streams, or were
  std::vector<Stream> free_handles_;
};

}  // namespace trt_et::cuda
