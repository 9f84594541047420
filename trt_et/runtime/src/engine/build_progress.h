// See trt_et_set_build_progress.
#pragma once

#include <atomic>

#include "trt_et/runtime.h"

namespace trt_et {

inline std::atomic<trt_et_build_progress> g_build_progress{nullptr};

inline trt_et_build_progress build_progress() { return g_build_progress; }
inline void set_build_progress(trt_et_build_progress progress) { g_build_progress = progress; }

}  // namespace trt_et
