#include "pinned_staging.h"

#include <atomic>

namespace trt_et {
namespace {

constexpr size_t kAlignment = 256;
std::atomic<size_t> g_requested{0};

}  // namespace

void request_pinned_staging(size_t bytes) {
  size_t known = g_requested.load();
  while (known < bytes && !g_requested.compare_exchange_weak(known, bytes)) {
  }
}

PinnedStaging::~PinnedStaging() {
  if (cuda::is_ending()) return;
  // A copy to the GPU may still read it: CUDA does not say that freeing pinned memory waits.
  if (used_ > 0) (void)report(api_.synchronize_stream(stream_));
  if (memory_ != nullptr) (void)report(api_.release_pinned(memory_));
}

// Pinned memory is scarce: without it, copies go the way that they go without the option.
bool PinnedStaging::allocate() {
  const size_t wanted = g_requested.load(std::memory_order_relaxed);
  // What is in it stays where it is.
  if (failed_ || wanted <= capacity_ || used_ > 0) return memory_ != nullptr;
  void* memory = nullptr;
  failed_ = !api_.allocate_pinned(wanted, &memory).ok();
  if (failed_) return memory_ != nullptr;
  if (memory_ != nullptr) (void)report(api_.release_pinned(memory_));
  memory_ = static_cast<uint8_t*>(memory);
  capacity_ = wanted;
  return true;
}

void* PinnedStaging::take(size_t size, bool may_wait) {
  if (!allocate() || size > capacity_) return nullptr;
  if (size > capacity_ - used_) {
    if (!may_wait || !api_.synchronize_stream(stream_).ok()) return nullptr;
    used_ = 0;
  }
  void* room = memory_ + used_;
  const size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
  used_ = rounded < capacity_ - used_ ? used_ + rounded : capacity_;
  return room;
}

}  // namespace trt_et
