#include "crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace trt_et {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

// For processors without the instruction, which no GPU of today is beside.
uint32_t by_table(uint32_t crc, const uint8_t* p, size_t size) {
  for (; size > 0; ++p, --size) crc = (crc >> 8) ^ kTable[(crc ^ *p) & 0xFF];
  return crc;
}

#if defined(__x86_64__) || (defined(__aarch64__) && defined(__linux__))

uint64_t load64(const uint8_t* p) {
  uint64_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

#if defined(__x86_64__)
#define TRT_ET_CRC_TARGET __attribute__((target("sse4.2")))
TRT_ET_CRC_TARGET inline uint64_t step64(uint64_t crc, uint64_t data) {
  return _mm_crc32_u64(crc, data);
}
bool has_crc_instruction() { return __builtin_cpu_supports("sse4.2"); }
#else
#define TRT_ET_CRC_TARGET __attribute__((target("+crc")))
TRT_ET_CRC_TARGET inline uint64_t step64(uint64_t crc, uint64_t data) {
  return __crc32cd(static_cast<uint32_t>(crc), data);
}
bool has_crc_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

TRT_ET_CRC_TARGET uint32_t by_instruction(uint32_t crc, const uint8_t* p, size_t size) {
  for (; size >= 8; p += 8, size -= 8) crc = static_cast<uint32_t>(step64(crc, load64(p)));
  return by_table(crc, p, size);
}

#endif

}  // namespace

// Inside, a CRC is inverted.
uint32_t crc32c_by_table(uint32_t crc, const void* data, size_t size) {
  return ~by_table(~crc, static_cast<const uint8_t*>(data), size);
}

uint32_t crc32c(uint32_t crc, const void* data, size_t size) {
#if defined(__x86_64__) || (defined(__aarch64__) && defined(__linux__))
  static const bool fast = has_crc_instruction();
  if (fast) return ~by_instruction(~crc, static_cast<const uint8_t*>(data), size);
#endif
  return crc32c_by_table(crc, data, size);
}

}  // namespace trt_et
