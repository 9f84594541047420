// How this provider says that something failed: an ExecuTorch code and a text. The provider is a
// library of its own, so it links nothing of ExecuTorch and has its own last error.
#pragma once

#include <executorch/runtime/core/error.h>

#include <exception>
#include <new>
#include <string>

#include "trt_et/engine_provider.h"

namespace trt_et::tensorrt {

using executorch::runtime::Error;

struct [[nodiscard]] ProviderStatus {
  Error error = Error::Ok;
  std::string text;

  bool ok() const { return error == Error::Ok; }
};

ProviderStatus fail(Error error, const char* format, ...) __attribute__((format(printf, 2, 3)));

// A text of a thread that outlives the thread's other objects: an engine may be freed after them.
// Longer ones are cut.
class ThreadText {
 public:
  ThreadText& operator=(const std::string& text) { return *this = text.c_str(); }
  ThreadText& operator=(const char* text);
  const char* c_str() const { return text_; }
  bool empty() const { return text_[0] == '\0'; }
  void clear() { text_[0] = '\0'; }

 private:
  char text_[512];
};

// The text of the last failure of this thread.
ThreadText& last_error();

// The plugin's side; set before anything else happens.
const trt_et_host& host();
void set_host(const trt_et_host* host);

// Nothing may throw through the table.
template <typename F>
int guarded(F&& function) noexcept {
  last_error().clear();
  try {
    ProviderStatus result = function();
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

}  // namespace trt_et::tensorrt

#define TRT_ET_PROVIDER_TRY(expression)                               \
  do {                                                                \
    ::trt_et::tensorrt::ProviderStatus trt_et_status_ = (expression); \
    if (!trt_et_status_.ok()) return trt_et_status_;                  \
  } while (false)
