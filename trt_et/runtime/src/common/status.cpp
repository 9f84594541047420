#include "status.h"

#include <cstdarg>
#include <cstdio>

#include "log.h"

namespace trt_et {
namespace {

// A plain array: errors are reported until the very end of the process.
thread_local char t_last_error[kMaxErrorText + 1] = "";

// The cut may fall inside a UTF-8 sequence of a name; drop the incomplete one.
void drop_partial_character(std::string& text) {
  size_t continuation = 0;
  while (continuation < 4 && continuation < text.size() &&
         (static_cast<unsigned char>(text[text.size() - 1 - continuation]) & 0xC0) == 0x80) {
    ++continuation;
  }
  if (continuation >= text.size()) return;
  const auto lead = static_cast<unsigned char>(text[text.size() - 1 - continuation]);
  const size_t expected = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
  if (continuation < expected) text.resize(text.size() - 1 - continuation);
}

}  // namespace

Status fail(Error error, const char* format, ...) {
  char buffer[kMaxErrorText + 1];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  Status status{error, buffer};
  if (length > static_cast<int>(kMaxErrorText)) drop_partial_character(status.text);
  return status;
}

Error report(const Status& status) {
  if (status.ok()) return Error::Ok;
  log(LogLevel::error, "TensorRTBackend: %s", status.text.c_str());
  remember_error(status.text.c_str());
  return status.error;
}

void remember_error(const char* text) {
  std::snprintf(t_last_error, sizeof t_last_error, "%s", text);
}

const char* last_error_text() { return t_last_error; }
void clear_last_error() { t_last_error[0] = '\0'; }

}  // namespace trt_et
