// CRC-32C by carry-less multiplication of wide vectors: as fast as memory is read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trt_et {

inline constexpr size_t kFoldedBytes = 512;

// Shortens a message: with `state` (the inverted CRC so far) in front, its first n bytes, which is
// returned and a multiple of kFoldedBytes, have the remainder of `folded` with a state of 0.
// `size` is at least kFoldedBytes.
using Fold = size_t (*)(uint32_t state, const uint8_t* data, size_t size, uint8_t* folded);

// Null where this processor has no such instructions.
Fold find_fold();

}  // namespace trt_et
