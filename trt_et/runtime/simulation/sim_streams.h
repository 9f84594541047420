// The streams of the simulated GPUs by handle, and what the default streams imply.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "sim_stream.h"

namespace trt_et::cuda {

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
