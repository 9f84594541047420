#include "device_allocator.h"

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "common/immortal.h"
#include "common/log.h"
#include "cuda_api.h"
#include "streams.h"

namespace trt_et {
namespace {

using executorch::runtime::Result;
using executorch::runtime::etensor::DeviceIndex;
using executorch::runtime::etensor::DeviceType;

constexpr size_t kMaxAlignment = 256;  // What cudaMalloc promises.

std::atomic<DeviceRedirection> g_redirection{nullptr};
std::atomic<bool> g_redirected{false};  // some memory was planned on another device than asked for

// Planned memory that is there now, so that a copy need not ask CUDA what it is.
class Planned {
 public:
  void add(const void* pointer, size_t size, int device) {
    const std::unique_lock<std::shared_mutex> lock(lock_);
    by_address_[address(pointer)] = {size, device};
  }
  void remove(const void* pointer) {
    const std::unique_lock<std::shared_mutex> lock(lock_);
    by_address_.erase(address(pointer));
  }
  // -1 where all of it is not planned memory of one device.
  int device_of(const void* pointer, size_t size) {
    const std::shared_lock<std::shared_mutex> lock(lock_);
    auto next = by_address_.upper_bound(address(pointer));
    if (next == by_address_.begin()) return -1;
    --next;
    const Block& block = next->second;
    const size_t offset = address(pointer) - next->first;
    return offset < block.bytes && size <= block.bytes - offset ? block.device : -1;
  }

 private:
  struct Block {
    size_t bytes = 0;
    int device = 0;
  };

  static uintptr_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

  std::shared_mutex lock_;
  std::map<uintptr_t, Block> by_address_;
};

Planned& planned() { return immortal<Planned>(); }

// Finds the CUDA table, and makes the device that ExecuTorch names, or that the user moves its
// programs to, current.
class Entry {
 public:
  Status open(int index) {
    TRT_ET_TRY(redirect(&index));
    return open_device(index);
  }

  // The device of planned memory, which may have been moved when it was allocated.
  Status open_for(const void* pointer, int index) {
    TRT_ET_TRY(redirect(&index));
    if (!g_redirected) return open_device(index);
    const int known = planned().device_of(pointer, 1);
    if (known >= 0) return open_device(known);
    TRT_ET_TRY(open_device(index));
    cuda::PointerInfo info;
    TRT_ET_TRY(api_->pointer_info(pointer, &info));
    return info.kind == cuda::MemoryKind::device ? open_device(info.device) : Status{};
  }

  Status open_device(int index) {
    int count = 0;
    Status status = cuda::usable_devices(&api_, &count, cuda::access_or_simulate);
    if (!status.ok() && status.error != Error::NotFound) return status;
    if (!status.ok()) {
      return fail(Error::NotFound, "no memory on cuda:%d: %s%s", index, status.text.c_str(),
                  cuda::remedy().c_str());
    }
    device_ = index;
    if (index == -1) TRT_ET_TRY(api_->current_device(&device_));
    if (device_ < 0 || device_ >= count) {
      return fail(
          Error::NotFound,
          "memory is planned on cuda:%d but this machine has %d GPU(s): TRT_ET_DEVICE=0 moves "
          "memory and engines, a load option only engines; or export for another GPU",
          index, count);
    }
    guard_.emplace(*api_);
    TRT_ET_TRY(guard_->enter(device_));
    TRT_ET_TRY(thread_stream(*api_, device_, &stream_));
    return check_not_captured(*api_, stream_, "a copy or an allocation");
  }

  cuda::Api& api() { return *api_; }
  int device() const { return device_; }

  cuda::Stream stream() const { return stream_.handle; }

  Status wait() { return api_->synchronize_stream(stream()); }

  // Whether a pointer that ExecuTorch calls memory of this device is that.
  Status check_device_pointer(const void* pointer, size_t size, const char* what) {
    if (planned().device_of(pointer, size) == device_) return {};
    if (planned().device_of(pointer, 1) == device_) {
      return fail(Error::InvalidArgument, "%s %p: %zu bytes reach beyond its planned memory", what,
                  pointer, size);
    }
    cuda::PointerInfo info;
    TRT_ET_TRY(api_->pointer_info(pointer, &info));
    if (info.kind == cuda::MemoryKind::managed) return {};
    if (info.kind != cuda::MemoryKind::device) {
      return fail(Error::InvalidArgument, "%s %p is host memory, expected memory of cuda:%d", what,
                  pointer, device_);
    }
    if (info.device == device_) return {};
    return fail(Error::InvalidArgument, "%s %p is on cuda:%d, expected cuda:%d", what, pointer,
                info.device, device_);
  }

 private:
  static Status redirect(int* index) {
    const DeviceRedirection redirection = g_redirection.load();
    const int asked = *index;
    if (redirection != nullptr) TRT_ET_TRY(redirection(index));
    if (*index != asked) g_redirected = true;
    return {};
  }

  cuda::Api* api_ = nullptr;
  int device_ = 0;
  std::optional<cuda::DeviceGuard> guard_;
  WorkStream stream_;  // this thread's
};

Status check_copy(const void* to, const void* from, const char* what) {
  if (to != nullptr && from != nullptr) return {};
  return fail(Error::InvalidArgument, "%s: %s is null", what, to == nullptr ? "target" : "source");
}

Status allocate_on(size_t nbytes, int index, size_t alignment, void** pointer) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > kMaxAlignment) {
    return fail(Error::InvalidArgument, "alignment %zu is not a power of 2 up to %zu", alignment,
                kMaxAlignment);
  }
  Entry entry;
  TRT_ET_TRY(entry.open(index));
  // A planned buffer may be empty, and its address is still used.
  const size_t size = nbytes == 0 ? 1 : nbytes;
  TRT_ET_TRY(entry.api().allocate(size, pointer));
  // State that a program keeps in planned memory begins at zero, as it does in ExecuTorch's own
  // memory on the host. Any thread may use it next, on its own stream: so it is waited for.
  Status zeroed = entry.api().zero(*pointer, size, entry.stream());
  if (zeroed.ok()) zeroed = entry.wait();
  if (!zeroed.ok()) {
    (void)report(entry.api().release(*pointer));
    return zeroed;
  }
  planned().add(*pointer, size, entry.device());
  return {};
}

// CUDA waits for all that is queued on the device. (Waiting for other threads' streams here would
// end a capture that is going on there.)
Status deallocate(void* pointer) {
  if (pointer == nullptr || cuda::is_ending()) return {};
  cuda::Api* api = nullptr;
  TRT_ET_TRY(cuda::access_or_simulate(&api));
  cuda::DeviceGuard guard(*api);
  const int device = planned().device_of(pointer, 0);
  if (device >= 0) (void)report(guard.enter(device));
  planned().remove(pointer);
  return api->release(pointer);
}

Status copy_to_device(void* to, const void* from, size_t nbytes, int index) {
  if (nbytes == 0) return {};
  TRT_ET_TRY(check_copy(to, from, "copy to the device"));
  Entry entry;
  TRT_ET_TRY(entry.open_for(to, index));
  TRT_ET_TRY(entry.check_device_pointer(to, nbytes, "copy to the device: target"));
  TRT_ET_TRY(entry.api().copy(to, from, nbytes, cuda::CopyKind::host_to_device, entry.stream()));
  // The planner may give the source to another tensor as soon as this returns, and CUDA may not
  // have read it by then, pageable or not.
  return entry.wait();
}

Status copy_to_host(void* to, const void* from, size_t nbytes, int index) {
  if (nbytes == 0) return {};
  TRT_ET_TRY(check_copy(to, from, "copy to the host"));
  Entry entry;
  TRT_ET_TRY(entry.open_for(from, index));
  TRT_ET_TRY(entry.check_device_pointer(from, nbytes, "copy to the host: source"));
  TRT_ET_TRY(entry.api().copy(to, from, nbytes, cuda::CopyKind::device_to_host, entry.stream()));
  return entry.wait();
}

class CudaAllocator final : public executorch::runtime::DeviceAllocator {
 public:
  Result<void*> allocate(size_t nbytes, DeviceIndex index, size_t alignment) override {
    clear_last_error();
    void* pointer = nullptr;
    const Error error = enter([&] { return allocate_on(nbytes, index, alignment, &pointer); });
    if (error != Error::Ok) return error;
    return pointer;
  }

  void deallocate(void* ptr, DeviceIndex) override {
    (void)enter([&] { return trt_et::deallocate(ptr); });
  }

  Error copy_host_to_device(void* dst, const void* src, size_t nbytes, DeviceIndex index) override {
    clear_last_error();
    return enter([&] { return copy_to_device(dst, src, nbytes, index); });
  }

  Error copy_device_to_host(void* dst, const void* src, size_t nbytes, DeviceIndex index) override {
    clear_last_error();
    return enter([&] { return copy_to_host(dst, src, nbytes, index); });
  }

  DeviceType device_type() const override { return DeviceType::CUDA; }
};

}  // namespace

int planned_device(const void* pointer, size_t size) { return planned().device_of(pointer, size); }

bool cuda_allocator_is_registered() {
  return executorch::runtime::get_device_allocator(DeviceType::CUDA) == &cuda_allocator();
}

void set_device_redirection(DeviceRedirection redirection) { g_redirection = redirection; }

executorch::runtime::DeviceAllocator& cuda_allocator() { return immortal<CudaAllocator>(); }

}  // namespace trt_et
