// Integers in files, little-endian whatever the host is, and the sizes in an engine blob.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trt_et {

inline constexpr size_t kBlobHeaderSize = 32;
inline constexpr size_t kEngineAlignment = 16;

template <typename T>
T read_le(const uint8_t* p) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(p[i]) << 8 * i);
  return value;
}

}  // namespace trt_et
