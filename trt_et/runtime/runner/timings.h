// How long loading and running took.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

namespace trt_et::runner {

using Clock = std::chrono::steady_clock;

class Timings {
 public:
  void loaded(Clock::duration time) { load_ = time; }
  // A run; of those for warming up, only the first counts.
  void ran(Clock::duration time, bool warm_up) {
    if (!warm_up || runs_.empty()) runs_.push_back(time);
  }

  // Writes them to stdout, in microseconds. The first run is reported apart: it makes what the
  // others use again.
  void print() const {
    std::printf("Load: %.1f us\n", microseconds(load_));
    if (runs_.empty()) return;
    std::printf("First run: %.1f us\n", microseconds(runs_.front()));
    std::vector<Clock::duration> sorted(runs_.begin() + 1, runs_.end());
    if (sorted.empty()) return;
    std::sort(sorted.begin(), sorted.end());
    std::printf("Next %zu runs: p50 %.1f us, p90 %.1f us, p99 %.1f us, min %.1f us, max %.1f us\n",
                sorted.size(), percentile(sorted, 50), percentile(sorted, 90),
                percentile(sorted, 99), microseconds(sorted.front()), microseconds(sorted.back()));
  }

 private:
  static double microseconds(Clock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
  }

  // The smallest value that `percent` of all are not above.
  static double percentile(const std::vector<Clock::duration>& sorted, double percent) {
    const auto rank =
        static_cast<size_t>(std::ceil(percent / 100.0 * static_cast<double>(sorted.size())));
    return microseconds(sorted[std::max<size_t>(rank, 1) - 1]);
  }

  Clock::duration load_{};
  std::vector<Clock::duration> runs_;
};

}  // namespace trt_et::runner
