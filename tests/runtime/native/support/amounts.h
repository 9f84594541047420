// How much a test does: little by default, more where `make reliability` says so.
#pragma once

#include <cstdint>
#include <cstdlib>

inline uint64_t amount(const char* variable, uint64_t by_default) {
  const char* asked = std::getenv(variable);
  return asked == nullptr ? by_default : std::strtoull(asked, nullptr, 10);
}
