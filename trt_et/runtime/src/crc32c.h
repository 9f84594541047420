// CRC-32C (Castagnoli), the checksum of engine blobs: iSCSI's polynomial, reflected.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trt_et {

// Continues `crc` (0 to start) over `size` bytes. Uses the processor's CRC instruction where it has
// one: engines are hundreds of megabytes, and the checksum is part of every load.
uint32_t crc32c(uint32_t crc, const void* data, size_t size);

// The table-driven form that works everywhere; exposed so that tests can compare the two.
uint32_t crc32c_portable(uint32_t crc, const void* data, size_t size);

}  // namespace trt_et
