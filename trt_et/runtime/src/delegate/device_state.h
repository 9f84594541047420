// GPU memory for state that ExecuTorch plans on the host and methods share.
#pragma once

#include <memory>

#include "cuda/cuda_api.h"
#include "cuda/device_buffer.h"

namespace trt_et {

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
