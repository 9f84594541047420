// GPU memory that delegates share: scratch memory of a method's engines, and state.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "cuda/cuda_api.h"
#include "cuda/device_buffer.h"
#include "cuda/streams.h"

namespace trt_et {

// Scratch memory that the engines of a method share: they run one after another, and each needs it
// only while it runs.
// Thread-safe. Whoever uses it next, on whatever stream, comes behind whoever used it last.
class Scratch {
 public:
  // The one for `owner` (what the delegates of a method have in common) on a device.
  static std::shared_ptr<Scratch> of(const void* owner, cuda::Api& api, int device);
  Scratch(cuda::Api& api, int device) : api_(api), device_(device) {}
  ~Scratch();

  // Makes room. The memory may move; users see that in use(). The device must be current.
  Status reserve(size_t bytes);

  // One use: `queue` gets the memory and queues its work on `stream`, and nobody else does
  // meanwhile.
  Status use(const WorkStream& stream, const std::function<Status(const DeviceBuffer&)>& queue);

 private:
  cuda::Api& api_;
  const int device_;
  std::mutex mutex_;
  DeviceBuffer buffer_;
  cuda::Event used_ = nullptr;  // behind the last use
  WorkStream last_stream_;
  bool in_use_ = false;  // has been, so that its event means something
};

// One mutable buffer of a program. Methods that share their host arenas give it one host address;
// that address identifies it, and the host memory itself is not used.
class DeviceState {
 public:
  // The GPU memory of the buffer at `host`, zero at first; for as long as a delegate keeps it. The
  // device must be current. Thread-safe.
  static Status of(const void* host, cuda::Api& api, int device, size_t bytes,
                   std::shared_ptr<DeviceState>* state);

  void* data() const { return buffer_.data(); }

 private:
  DeviceBuffer buffer_;
};

}  // namespace trt_et
