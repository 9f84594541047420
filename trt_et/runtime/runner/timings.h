// How long loading and running took.
#pragma once

#include <chrono>
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
  void print() const;

 private:
  Clock::duration load_{};
  std::vector<Clock::duration> runs_;
};

}  // namespace trt_et::runner
