// Stands in for ExecuTorch's libexecutorch_backend_cuda.so: registers a CUDA allocator. With
// -DSTAND_IN_MAIN it is a program that prints trt_et_status(), and with -DWITHOUT_STAND_IN it
// registers nothing. With -DSTAND_IN_BACKEND it also has the symbols of that library's allocator,
// and of ExecuTorch's CUDA extension.
#include <executorch/runtime/core/device_allocator.h>

#include <cstdio>
#include <optional>

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

// As its CUDA extension has it, within a CallerStreamGuard of stream 0.
namespace executorch::extension::cuda {
std::optional<void*> getCallerStream() { return nullptr; }
}  // namespace executorch::extension::cuda
#endif

static Allocator allocator;
static const bool registered = (register_device_allocator(&allocator), true);
#endif

#ifdef STAND_IN_MAIN
extern "C" size_t trt_et_status(char* out, size_t capacity);
extern "C" int trt_et_get_stream(int device, void** stream);

int main() {
  char status[512];
  trt_et_status(status, sizeof status);
  std::puts(status);
#ifdef STAND_IN_BACKEND
  void* stream = nullptr;
  if (trt_et_get_stream(0, &stream) == 0) std::printf("stream %p\n", stream);
#endif
}
#endif
