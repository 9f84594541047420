// Objects that delegates share, and that live as long as one of them does.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace trt_et {

// Thread-safe.
template <typename Key, typename T>
class SharedObjects {
 public:
  // The object of the key, which becomes `made` if there is none and something was made.
  std::shared_ptr<T> find(const Key& key, std::shared_ptr<T> made) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = by_key_.begin(); it != by_key_.end();) {
      it = it->second.expired() ? by_key_.erase(it) : std::next(it);
    }
    std::weak_ptr<T>& slot = by_key_[key];
    std::shared_ptr<T> found = slot.lock();
    if (found == nullptr) slot = found = std::move(made);
    return found;
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::weak_ptr<T>> by_key_;
};

}  // namespace trt_et
