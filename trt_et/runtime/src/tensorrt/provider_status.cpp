#include "provider_status.h"

#include <cstdio>

namespace trt_et::tensorrt {
namespace {

const trt_et_host* g_host = nullptr;

}  // namespace

ThreadText& ThreadText::operator=(const char* text) {
  std::snprintf(text_, sizeof text_, "%s", text);
  return *this;
}

ThreadText& last_error() {
  static thread_local ThreadText text;
  return text;
}

const trt_et_host& host() { return *g_host; }
void set_host(const trt_et_host* host) { g_host = host; }

}  // namespace trt_et::tensorrt
