// Stands in for ExecuTorch's libexecutorch_backend_cuda.so: registers a CUDA allocator. With
// -DSTAND_IN_MAIN it is a program that prints trt_et_status(), and with -DWITHOUT_STAND_IN it
// registers nothing. With -DSTAND_IN_BACKEND it also has the symbol of that library's allocator.
#include <executorch/runtime/core/device_allocator.h>

#include <cstdio>

using namespace executorch::runtime;

#ifndef WITHOUT_STAND_IN
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

#ifdef STAND_IN_BACKEND
// As ExecuTorch's CUDA backend has it.
namespace executorch::backends::cuda {
struct CudaAllocator {
  static CudaAllocator& instance();
};
CudaAllocator& CudaAllocator::instance() {
  static CudaAllocator only;
  return only;
}
}  // namespace executorch::backends::cuda
#endif

static Allocator allocator;
static const bool registered = (register_device_allocator(&allocator), true);
#endif

#ifdef STAND_IN_MAIN
extern "C" size_t trt_et_status(char* out, size_t capacity);

int main() {
  char status[512];
  trt_et_status(status, sizeof status);
  std::puts(status);
}
#endif
