#include "sim_memory.h"

#include <algorithm>
#include <cstring>

namespace trt_et::cuda {
namespace {

constexpr size_t kAlignment = 256;  // As cudaMalloc gives.
constexpr size_t kLargestGpu = size_t{1} << 40;
constexpr int kPoison = 0xDB;
constexpr size_t kMaxFreedBytes = 512 << 10;
constexpr size_t kMaxFreedCount = 64;

uintptr_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

Status SimMemory::allocate(int device, size_t size, void** pointer, bool managed) {
  const size_t wanted = size == 0 ? 1 : size;
  if (wanted > kLargestGpu) {  // A sanitizer would end the process.
    return fail(Error::MemoryAllocationFailed, "no simulated GPU memory for %zu bytes", size);
  }
  const size_t rounded = (wanted + kAlignment - 1) / kAlignment * kAlignment;
  Allocation made;
  made.memory.reset(std::aligned_alloc(kAlignment, rounded));
  if (made.memory == nullptr) {
    return fail(Error::MemoryAllocationFailed, "no simulated GPU memory for %zu bytes", size);
  }
  *pointer = made.memory.get();
  std::memset(*pointer, kPoison, rounded);
  made.size = wanted;
  made.device = device;
  made.managed = managed;
  const std::unique_lock<std::shared_mutex> lock(lock_);
  live_[address(*pointer)] = std::move(made);
  return {};
}

Status SimMemory::release(void* pointer) {
  const std::unique_lock<std::shared_mutex> lock(lock_);
  const auto found = live_.find(address(pointer));
  if (found == live_.end()) {
    return fail(Error::InvalidArgument,
                was_freed(pointer) ? "double free of %p on a simulated GPU"
                                   : "free of %p, which was not allocated on a simulated GPU",
                pointer);
  }
  std::memset(pointer, kPoison, found->second.size);
  quarantine(found);
  return {};
}

void SimMemory::quarantine(Map::iterator freed) {
  freed_bytes_ += freed->second.size;
  freed_.push_back(std::move(freed->second));
  live_.erase(freed);
  while (freed_bytes_ > kMaxFreedBytes || freed_.size() > kMaxFreedCount) {
    freed_bytes_ -= freed_.front().size;
    freed_.pop_front();
  }
}

bool SimMemory::was_freed(const void* pointer) const {
  return std::any_of(freed_.begin(), freed_.end(), [pointer](const Allocation& one) {
    return address(pointer) - address(one.memory.get()) < one.size;
  });
}

SimMemory::Map::const_iterator SimMemory::holder(const void* pointer) const {
  auto next = live_.upper_bound(address(pointer));
  if (next == live_.begin()) return live_.end();
  --next;
  return address(pointer) - next->first < next->second.size ? next : live_.end();
}

Status SimMemory::find(const void* pointer, PointerInfo* info) {
  const std::shared_lock<std::shared_mutex> lock(lock_);
  const auto found = holder(pointer);
  if (found != live_.end()) {
    const MemoryKind kind = found->second.managed             ? MemoryKind::managed
                            : found->second.device == kPinned ? MemoryKind::pinned
                                                              : MemoryKind::device;
    *info = PointerInfo{kind, found->second.device, kind == MemoryKind::pinned};
    return {};
  }
  if (was_freed(pointer)) {
    return fail(Error::InvalidArgument, "use after free: %p was freed on a simulated GPU", pointer);
  }
  *info = PointerInfo{};
  return {};
}

Status SimMemory::check(const void* pointer, size_t size, int device, const char* what) {
  const std::shared_lock<std::shared_mutex> lock(lock_);
  const auto found = holder(pointer);
  if (found == live_.end()) {
    return fail(Error::InvalidArgument,
                was_freed(pointer) ? "%s %p is used after it was freed"
                                   : "%s %p is not memory of a simulated GPU",
                what, pointer);
  }
  const bool mapped = found->second.device == kPinned && integrated_;
  if (found->second.device != device && !found->second.managed && !mapped) {
    if (found->second.device == kPinned) {
      return fail(Error::InvalidArgument, "%s %p is host memory, not on cuda:%d", what, pointer,
                  device);
    }
    return fail(Error::InvalidArgument, "%s %p is on cuda:%d, not on cuda:%d", what, pointer,
                found->second.device, device);
  }
  const size_t offset = address(pointer) - found->first;
  if (size > found->second.size - offset) {
    return fail(Error::InvalidArgument, "%s %p: %zu bytes at offset %zu of an allocation of %zu",
                what, pointer, size, offset, found->second.size);
  }
  return {};
}

Status SimMemory::check_kernel(const void* pointer, size_t size, int device, const char* what) {
  if (pageable_) {
    PointerInfo info;
    TRT_ET_TRY(find(pointer, &info));
    if (info.kind == MemoryKind::host) return {};
  }
  return check(pointer, size, device, what);
}

uint64_t SimMemory::live_bytes(int device) {
  const std::shared_lock<std::shared_mutex> lock(lock_);
  uint64_t bytes = 0;
  for (const auto& [key, one] : live_) bytes += one.device == device ? one.size : 0;
  return bytes;
}

}  // namespace trt_et::cuda
