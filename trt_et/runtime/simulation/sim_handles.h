// The event and graph handles that simulated CUDA has given out: any other is refused.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "common/status.h"

namespace trt_et::cuda {

template <typename T>
class SimHandles {
 public:
  // `kind`: as messages call one of them.
  explicit SimHandles(const char* kind) : kind_(kind) {}

  void* add(std::shared_ptr<T> object) {
    const std::unique_lock<std::shared_mutex> lock(lock_);
    void* const handle = object.get();
    live_[handle] = std::move(object);
    return handle;
  }

  Status find(void* handle, std::shared_ptr<T>* object) {
    const std::shared_lock<std::shared_mutex> lock(lock_);
    const auto found = live_.find(handle);
    if (found == live_.end()) return unknown();
    *object = found->second;
    return {};
  }

  Status remove(void* handle) {
    const std::unique_lock<std::shared_mutex> lock(lock_);
    return live_.erase(handle) == 1 ? Status{} : unknown();
  }

  // Of leaks: what has been made and not destroyed.
  size_t live() {
    const std::shared_lock<std::shared_mutex> lock(lock_);
    return live_.size();
  }

 private:
  Status unknown() const {
    return fail(Error::InvalidArgument, "not %s of a simulated GPU", kind_);
  }

  const char* const kind_;
  std::shared_mutex lock_;
  std::unordered_map<void*, std::shared_ptr<T>> live_;
};

}  // namespace trt_et::cuda
