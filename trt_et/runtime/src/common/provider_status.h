// What a provider library has for itself: its last error, as the table wants it, and its host.
#pragma once

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "common/engine_provider.h"
#include "status.h"

namespace trt_et {

// A text of a thread that outlives the thread's other objects: an engine may be freed after them.
// Longer ones are cut.
class ThreadText {
 public:
  ThreadText& operator=(const std::string& text) { return *this = text.c_str(); }
  ThreadText& operator=(const char* text) {
    std::snprintf(text_, sizeof text_, "%s", text);
    return *this;
  }
  const char* c_str() const { return text_; }
  bool empty() const { return text_[0] == '\0'; }
  void clear() { text_[0] = '\0'; }

 private:
  char text_[512];
};

// The text of the last failure of this thread. Each provider has one: symbols are hidden.
inline ThreadText& last_error() {
  static thread_local ThreadText text;
  return text;
}

// The plugin's side; set before anything else happens.
inline const trt_et_host* g_host = nullptr;
inline const trt_et_host& host() { return *g_host; }

// Nothing may throw through the table.
template <typename F>
int guarded(F&& function) noexcept {
  last_error().clear();
  try {
    Status result = function();
    if (!result.ok()) last_error() = result.text;
    return static_cast<int>(result.error);
  } catch (const std::bad_alloc&) {
    last_error() = "no host memory";
    return static_cast<int>(Error::MemoryAllocationFailed);
  } catch (const std::exception& error) {
    last_error() = error.what();
  } catch (...) {
  }
  return static_cast<int>(Error::Internal);
}

}  // namespace trt_et
