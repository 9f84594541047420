#include "sim_memory.h"

#include <cstdlib>
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

void SimMemory::Free::operator()(void* memory) const { std::free(memory); }

Status SimMemory::allocate(int device, size_t size, void** pointer, bool managed) {
  const size_t wanted = size == 0 ? 1 : size;
  if (wanted > kLargestGpu) {  // A sanitizer would end the process.
    return fail(Error::MemoryAllocationFailed, "no simulated GPU memory for %zu bytes", size);
  }
  const size_t rounded = (wanted + kAlignment - 1) / kAlignment * kAlignment;
  std::unique_ptr<void, Free> memory(std::aligned_alloc(kAlignment, rounded));
  if (memory == nullptr) {
    return fail(Error::MemoryAllocationFailed, "no simulated GPU memory for %zu bytes", size);
  }
  std::memset(memory.get(), kPoison, rounded);
  *pointer = memory.get();
  const std::unique_lock<StripedLock> lock(lock_);
  live_[address(*pointer)] = Allocation{std::move(memory), wanted, device, managed};
  live_bytes_of(device) += wanted;
  return {};
}

Status SimMemory::release(void* pointer) {
  const std::unique_lock<StripedLock> lock(lock_);
  const auto found = live_.find(address(pointer));
  if (found == live_.end()) {
    const bool twice = freed_.count(address(pointer)) != 0;
    return fail(Error::InvalidArgument,
                twice ? "double free of %p on a simulated GPU"
                      : "free of %p, which was not allocated on a simulated GPU",
                pointer);
  }
  live_bytes_of(found->second.device) -= found->second.size;
  std::memset(pointer, kPoison, found->second.size);
  quarantine(found);
  return {};
}

void SimMemory::quarantine(Map::iterator freed) {
  const uintptr_t key = freed->first;
  freed_bytes_ += freed->second.size;
  freed_[key] = std::move(freed->second);
  freed_order_.push_back(key);
  live_.erase(freed);
  while (freed_bytes_ > kMaxFreedBytes || freed_order_.size() > kMaxFreedCount) {
    const auto oldest = freed_.find(freed_order_.front());
    freed_order_.pop_front();
    freed_bytes_ -= oldest->second.size;
    freed_.erase(oldest);
  }
}

SimMemory::Map::const_iterator SimMemory::holder(const Map& map, const void* pointer) {
  auto next = map.upper_bound(address(pointer));
  if (next == map.begin()) return map.end();
  --next;
  return address(pointer) - next->first < next->second.size ? next : map.end();
}

Status SimMemory::find(const void* pointer, PointerInfo* info) {
  const std::shared_lock<StripedLock> lock(lock_);
  const auto found = holder(live_, pointer);
  if (found != live_.end()) {
    const MemoryKind kind = found->second.managed             ? MemoryKind::managed
                            : found->second.device == kPinned ? MemoryKind::pinned
                                                              : MemoryKind::device;
    *info = PointerInfo{kind, found->second.device, kind == MemoryKind::pinned};
    return {};
  }
  if (holder(freed_, pointer) != freed_.end()) {
    return fail(Error::InvalidArgument, "use after free: %p was freed on a simulated GPU", pointer);
  }
  *info = PointerInfo{};
  return {};
}

Status SimMemory::check(const void* pointer, size_t size, int device, const char* what) {
  const std::shared_lock<StripedLock> lock(lock_);
  const auto found = holder(live_, pointer);
  if (found == live_.end()) {
    const bool freed = holder(freed_, pointer) != freed_.end();
    return fail(
        Error::InvalidArgument,
        freed ? "%s %p is used after it was freed" : "%s %p is not memory of a simulated GPU", what,
        pointer);
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
  const std::shared_lock<StripedLock> lock(lock_);
  return live_bytes_of(device);
}

}  // namespace trt_et::cuda
