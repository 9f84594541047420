// The little that the native tests need of a test framework.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "common/status.h"

#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      std::fprintf(stderr, "%s:%d: CHECK(%s)\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                               \
    }                                                                             \
  } while (false)

#define CHECK_OK(expression)                                                   \
  do {                                                                         \
    const ::trt_et::Status check_status = (expression);                        \
    if (!check_status.ok()) {                                                  \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #expression, \
                   check_status.text.c_str());                                 \
      std::abort();                                                            \
    }                                                                          \
  } while (false)

// The expression fails, and its text holds `part`.
#define CHECK_FAILS(expression, part)                                                       \
  do {                                                                                      \
    const ::trt_et::Status check_status = (expression);                                     \
    if (check_status.ok() || check_status.text.find(part) == std::string::npos) {           \
      std::fprintf(stderr, "%s:%d: %s: '%s' lacks '%s'\n", __FILE__, __LINE__, #expression, \
                   check_status.text.c_str(), part);                                        \
      std::abort();                                                                         \
    }                                                                                       \
  } while (false)
