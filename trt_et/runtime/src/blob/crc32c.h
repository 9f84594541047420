// CRC-32C (Castagnoli), the checksum of engine blobs: iSCSI's polynomial, reflected.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trt_et {

// Continues `crc` (0 to start) over `size` bytes, with the processor's instruction if it has one:
// engines are hundreds of megabytes, and the checksum is part of every load.
uint32_t crc32c(uint32_t crc, const void* data, size_t size);

// The form for processors without an instruction for it. For tests.
uint32_t crc32c_by_table(uint32_t crc, const void* data, size_t size);

}  // namespace trt_et
