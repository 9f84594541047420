// TensorRT's progress, passed to the plugin.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "version.h"

namespace trt_et::tensorrt {

class BuildProgress final : public nvinfer::IProgressMonitor {
 public:
  using Report = int (*)(const char* phase, int32_t step, int32_t steps);
  explicit BuildProgress(Report report) : report_(report) {}

  // Whether the plugin has ended the build.
  bool is_ended() const { return ended_; }

  void phaseStart(const char* phase, const char*, int32_t steps) noexcept override {
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      steps_[phase] = steps;
    } catch (...) {  // No memory: the number of steps is not known.
    }
    tell(phase, 0);
  }
  bool stepComplete(const char* phase, int32_t step) noexcept override {
    tell(phase, step + 1);
    return !ended_;
  }
  void phaseFinish(const char*) noexcept override {}

 private:
  void tell(const char* phase, int32_t step) noexcept {
    int32_t steps = 0;
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto known = steps_.find(phase);
      if (known != steps_.end()) steps = known->second;
    } catch (...) {  // Likewise.
    }
    if (report_(phase, step, steps) == 0) ended_ = true;
  }

  const Report report_;
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::map<std::string, int32_t> steps_;  // of each phase
};

}  // namespace trt_et::tensorrt
