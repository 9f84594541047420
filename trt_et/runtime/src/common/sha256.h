// SHA-256 (FIPS 180-4), as names of bytes.
#pragma once

#include <cstddef>
#include <string>

namespace trt_et {

// 64 hex digits.
std::string sha256(const void* bytes, size_t size);

}  // namespace trt_et
