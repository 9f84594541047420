// ExecuTorch's planned memory on GPUs, and its copies between host and device.
#pragma once

#include <executorch/runtime/core/device_allocator.h>

#include "common/status.h"

namespace trt_et {

// What the plugin registers; it lives until the process ends. Thread-safe. The memory is zeroed. A
// device of -1 means the current one, as ExecuTorch's own CUDA allocator takes it. Copies go
// through the calling thread's stream (streams.h), and are complete when they return.
executorch::runtime::DeviceAllocator& cuda_allocator();

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
