#include <vector>

#include "check.h"
#include "crc32c.h"
#include "tests.h"

void test_crc32c() {
  CHECK(trt_et::crc32c(0, "123456789", 9) == 0xE3069283u);
  CHECK(trt_et::crc32c_portable(0, "123456789", 9) == 0xE3069283u);
  std::vector<uint8_t> bytes(40000);
  uint32_t state = 1;
  for (uint8_t& byte : bytes)
    byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  // All lengths around the block sizes, at every alignment.
  for (size_t size = 0; size + 8 < bytes.size(); size += size < 300 ? 1 : 997) {
    const size_t at = size % 8;
    CHECK(trt_et::crc32c(7, bytes.data() + at, size) ==
          trt_et::crc32c_portable(7, bytes.data() + at, size));
  }
}
