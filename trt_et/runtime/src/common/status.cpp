#include "status.h"

#include <cstdarg>
#include <cstdio>

namespace trt_et {
namespace {

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

}  // namespace trt_et
