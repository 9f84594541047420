// CRC-32C (Castagnoli), the checksum of engine blobs: iSCSI's polynomial, reflected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trt_et {

// Continues `crc` (0 to start) over `size` bytes, in the fastest form that the processor has:
// engines are hundreds of megabytes, and the checksum is part of every load.
uint32_t crc32c(uint32_t crc, const void* data, size_t size);

struct Crc32cForm {
  const char* name;
  uint32_t (*function)(uint32_t crc, const void* data, size_t size);
};

// All forms that this processor can run, the fastest first; the last, by tables, works everywhere.
// For tests.
const std::vector<Crc32cForm>& crc32c_forms();

}  // namespace trt_et
