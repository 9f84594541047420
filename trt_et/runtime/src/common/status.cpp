#include "status.h"

#include <cstdarg>
#include <cstdio>

namespace trt_et {
Status fail(Error error, const char* format, ...) {
  char buffer[kMaxErrorText + 1];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return {error, buffer};
}

}  // namespace trt_et
