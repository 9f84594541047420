// Writes kernel caches a little after an engine's shapes have changed: a server that is killed has
// kept what was compiled. One thread for all engines.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace trt_et::tensorrt {

class KernelCache;

class KernelSaver {
 public:
  static KernelSaver& instance();

  // Writes the cache's file soon, and once more when the library has compiled what it compiles
  // beside the runs.
  void expect(KernelCache* cache) noexcept;
  // Waits while the cache is being written.
  void forget(KernelCache* cache) noexcept;
  // Writes every cache now.
  void save_all() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Plan {
    Clock::time_point due;
    int saves = 0;  // that are left
  };

  KernelSaver() = default;
  void run();
  // Both let go of the lock while a file is written. `save_due` returns when to look again.
  void save(KernelCache* cache, std::unique_lock<std::mutex>* lock);
  Clock::time_point save_due(std::unique_lock<std::mutex>* lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<KernelCache*, Plan> plans_;
  KernelCache* busy_ = nullptr;  // is being written
  std::thread thread_;
  bool stopped_ = false;
};

}  // namespace trt_et::tensorrt
