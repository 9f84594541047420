#include <cstring>
#include <numeric>
#include <vector>

#include "blob/crc32c.h"
#include "check.h"
#include "tests.h"

using namespace trt_et;

namespace {

// Bit by bit, from the polynomial: what all forms are held to.
uint32_t from_the_definition(uint32_t crc, const uint8_t* data, size_t size) {
  crc = ~crc;
  for (size_t i = 0; i < size; ++i) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
  }
  return ~crc;
}

}  // namespace

void test_crc32c(const std::string&) {
  // RFC 3720, B.4, and the usual check value.
  uint8_t ones[32], rising[32];
  std::memset(ones, 0xFF, sizeof ones);
  std::iota(rising, rising + 32, uint8_t{0});
  CHECK(from_the_definition(0, ones, 32) == 0x62A8AB43u);
  CHECK(from_the_definition(0, rising, 32) == 0x46DD794Eu);
  std::vector<uint8_t> bytes(40000);
  uint32_t state = 1;
  for (uint8_t& byte : bytes)
    byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  for (const auto form : {crc32c, crc32c_by_table}) {
    CHECK(form(0, "123456789", 9) == 0xE3069283u);
    // All lengths up to 1,600 bytes, and longer ones, at every alignment to a vector.
    for (size_t size = 0; size + 64 < bytes.size(); size += size < 1600 ? 1 : 997) {
      const size_t at = size * 7 % 64;
      const uint32_t expected = from_the_definition(7, bytes.data() + at, size);
      CHECK(form(7, bytes.data() + at, size) == expected);
      // In two parts.
      const size_t first = size * 5 / 9;
      const uint32_t begun = form(7, bytes.data() + at, first);
      CHECK(form(begun, bytes.data() + at + first, size - first) == expected);
    }
  }
}
