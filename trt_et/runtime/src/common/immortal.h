#pragma once

namespace trt_et {

// The one object of a type in this library. It is never destroyed: delegates, allocators and
// TensorRT's log are used until the very end of the process.
template <typename T>
T& immortal() {
  static auto* instance = new T;
  return *instance;
}

}  // namespace trt_et
