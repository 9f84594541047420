// Device memory that frees itself.
#pragma once

#include "cuda_api.h"

namespace trt_et {

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : api_(other.api_), pointer_(other.pointer_), size_(other.size_), device_(other.device_) {
    other.pointer_ = nullptr;
    other.size_ = 0;
  }
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer() { reset(); }

  // Makes room for `size` bytes, at least one, on the current device, which is `device`. What was
  // there is lost when it grows; no queued work may use it then.
  Status reserve(cuda::Api& api, int device, size_t size) {
    if (pointer_ != nullptr && size <= size_) return {};
    reset();
    const size_t wanted = size == 0 ? 1 : size;
    TRT_ET_TRY(api.allocate(wanted, &pointer_));
    api_ = &api;
    size_ = wanted;
    device_ = device;
    return {};
  }

  bool fits(size_t size) const { return pointer_ != nullptr && size <= size_; }
  void* data() const { return pointer_; }
  size_t size() const { return size_; }
  int device() const { return device_; }

 private:
  void reset() {
    if (pointer_ == nullptr || cuda::is_ending()) return;
    cuda::DeviceGuard guard(*api_);
    // Freeing does not depend on the current device: whatever fails, the memory goes.
    (void)report(guard.enter(device_));
    (void)report(api_->release(pointer_));
    pointer_ = nullptr;
    size_ = 0;
  }

  cuda::Api* api_ = nullptr;
  void* pointer_ = nullptr;
  size_t size_ = 0;
  int device_ = 0;
};

}  // namespace trt_et
