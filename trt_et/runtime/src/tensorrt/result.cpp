#include "result.h"

#include <cstdarg>
#include <cstdio>

namespace trt_et::tensorrt {
namespace {

const trt_et_host* g_host = nullptr;

}  // namespace

Result fail(Error error, const char* format, ...) {
  char buffer[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return {error, buffer};
}

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

const trt_et_host& host() { return *g_host; }
void set_host(const trt_et_host* host) { g_host = host; }

}  // namespace trt_et::tensorrt
