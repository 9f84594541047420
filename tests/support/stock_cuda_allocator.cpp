// Stands in for ExecuTorch's libexecutorch_backend_cuda.so: registers a CUDA allocator.
#include <executorch/runtime/core/device_allocator.h>

using namespace executorch::runtime;

struct Allocator final : DeviceAllocator {
  Result<void*> allocate(size_t, etensor::DeviceIndex, size_t) override {
    return Error::MemoryAllocationFailed;
  }
  void deallocate(void*, etensor::DeviceIndex) override {}
  Error copy_host_to_device(void*, const void*, size_t, etensor::DeviceIndex) override {
    return Error::NotSupported;
  }
  Error copy_device_to_host(void*, const void*, size_t, etensor::DeviceIndex) override {
    return Error::NotSupported;
  }
  etensor::DeviceType device_type() const override { return etensor::DeviceType::CUDA; }
};

static Allocator allocator;
static const bool registered = (register_device_allocator(&allocator), true);
