// An ExecuTorch error code together with the sentence that explains it.
#pragma once

#include <executorch/runtime/core/error.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace trt_et {

using executorch::runtime::Error;

// Success carries no text, so that passing it on costs no allocation.
struct [[nodiscard]] Status {
  Error error = Error::Ok;
  std::string text;

  bool ok() const { return error == Error::Ok; }
};

// Builds a failure from a printf format. ExecuTorch cuts log lines at 256 characters: the key fact
// comes first, and the text is cut at kMaxErrorText.
inline constexpr size_t kMaxErrorText = 200;
__attribute__((format(printf, 2, 3))) inline Status fail(Error error, const char* format, ...) {
  char text[kMaxErrorText + 1];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return {error, text};
}

// "[2, 3]", for messages.
template <typename T>
std::string shape_text(const T* sizes, int64_t rank) {
  std::string text = "[";
  for (int64_t i = 0; i < rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}

// Logs a failure and remembers it for trt_et_last_error(). Returns its code.
Error report(const Status& status);

// Remembers a failure that is not logged. Allocates nothing: memory may be what failed.
void remember_error(const char* text);

// The text of the last failure that this thread has reported since clear_last_error(); "" if there
// was none. Every entry that can fail begins with clear_last_error().
const char* last_error_text();
void clear_last_error();

}  // namespace trt_et

// Leaves the function with the status of `expression` if that is a failure.
#define TRT_ET_TRY(expression)                       \
  do {                                               \
    ::trt_et::Status trt_et_status_ = (expression);  \
    if (!trt_et_status_.ok()) return trt_et_status_; \
  } while (false)
