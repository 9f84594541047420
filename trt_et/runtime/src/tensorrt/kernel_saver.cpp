#include "kernel_saver.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "kernel_cache.h"

#if defined(TRT_ET_TENSORRT_RTX)

namespace trt_et::tensorrt {
namespace {

using std::chrono::seconds;

constexpr seconds kSoon{2};
constexpr seconds kLater{30};
constexpr seconds kIdle{3600};

}  // namespace

// Never destroyed: an engine may be freed at the very end of the process. But before the libraries
// that it uses are gone, its thread ends, and what is not written yet is.
KernelSaver& KernelSaver::instance() {
  static auto* saver = [] {
    auto* created = new KernelSaver;
    (void)std::atexit([] {
      KernelSaver& last = instance();
      {
        const std::lock_guard<std::mutex> lock(last.mutex_);
        last.stopped_ = true;
      }
      last.changed_.notify_all();
      if (last.thread_.joinable()) last.thread_.join();
      last.save_all();
    });
    return created;
  }();
  return *saver;
}

void KernelSaver::expect(KernelCache* cache) noexcept {
  try {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_) return;
    plans_[cache] = {Clock::now() + kSoon, 2};
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  } catch (...) {  // No memory or no thread: the file is written when the engine goes.
  }
  changed_.notify_all();
}

void KernelSaver::forget(KernelCache* cache) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  while (busy_ == cache) (void)changed_.wait_for(lock, kSoon);
  plans_.erase(cache);
}

void KernelSaver::save(KernelCache* cache, std::unique_lock<std::mutex>* lock) {
  while (busy_ != nullptr) (void)changed_.wait_for(*lock, kSoon);
  if (plans_.count(cache) == 0) return;
  busy_ = cache;
  lock->unlock();
  cache->save();
  lock->lock();
  busy_ = nullptr;
  changed_.notify_all();
}

void KernelSaver::save_all() noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  try {
    std::vector<KernelCache*> caches;
    for (const auto& [cache, plan] : plans_) caches.push_back(cache);
    for (KernelCache* cache : caches) save(cache, &lock);
  } catch (...) {  // No memory: they are written when their engines go.
  }
}

KernelSaver::Clock::time_point KernelSaver::save_due(std::unique_lock<std::mutex>* lock) {
  const auto now = Clock::now();
  for (;;) {
    const auto due = std::find_if(plans_.begin(), plans_.end(), [&](const auto& entry) {
      return entry.second.saves > 0 && entry.second.due <= now;
    });
    if (due == plans_.end()) break;
    due->second = {now + kLater, due->second.saves - 1};
    save(due->first, lock);
  }
  auto next = now + kIdle;
  for (const auto& [cache, plan] : plans_) {
    if (plan.saves > 0) next = std::min<Clock::time_point>(next, plan.due);
  }
  return next;
}

void KernelSaver::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopped_) {
    const auto next = save_due(&lock);
    if (!stopped_) (void)changed_.wait_until(lock, next);
  }
}

}  // namespace trt_et::tensorrt

#endif
