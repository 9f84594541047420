// Integers in files, little-endian whatever the host is, and the sizes in an engine blob.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

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

template <typename T>
void write_le(uint8_t* p, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) p[i] = static_cast<uint8_t>(value >> 8 * i);
}

template <typename T>
void append_le(std::string* text, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) *text += static_cast<char>(value >> 8 * i);
}

}  // namespace trt_et
