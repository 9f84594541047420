// ExecuTorch's planned memory on GPUs, and its copies between host and device.
#pragma once

#include <executorch/runtime/core/device_allocator.h>

#include "common/status.h"

namespace trt_et {

// Thread-safe. Copies go through the calling thread's stream (streams.h), and are complete when
// they return; with pinned staging, a copy to the device may still be going on, and the host's
// memory is free all the same.
class CudaAllocator final : public executorch::runtime::DeviceAllocator {
 public:
  using DeviceIndex = executorch::runtime::etensor::DeviceIndex;
  using DeviceType = executorch::runtime::etensor::DeviceType;
  using Error = executorch::runtime::Error;

  // The memory is zeroed. An index of -1 means the current device, as ExecuTorch's own CUDA
  // allocator takes it.
  executorch::runtime::Result<void*> allocate(size_t nbytes, DeviceIndex index,
                                              size_t alignment) override;
  void deallocate(void* ptr, DeviceIndex index) override;
  Error copy_host_to_device(void* dst, const void* src, size_t nbytes, DeviceIndex index) override;
  Error copy_device_to_host(void* dst, const void* src, size_t nbytes, DeviceIndex index) override;
  DeviceType device_type() const override { return DeviceType::CUDA; }
};

// The instance that the plugin registers; it lives until the process ends.
CudaAllocator& cuda_allocator();

// Whether ExecuTorch uses that instance, and not the allocator of another library.
bool cuda_allocator_is_registered();

// The GPU on which that instance has planned these bytes, or -1: no call of CUDA's tells as much
// for less.
int planned_device(const void* pointer, size_t size);

// Asked with the device index of each planned buffer: changes it where the user moves programs to
// another GPU. Set once, before anything is allocated.
using DeviceRedirection = Status (*)(int* device);
void set_device_redirection(DeviceRedirection redirection);

}  // namespace trt_et
