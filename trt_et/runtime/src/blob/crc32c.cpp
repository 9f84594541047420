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

using Table = std::array<std::array<uint32_t, 256>, 8>;

constexpr Table make_slice_tables() {
  Table tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (size_t slice = 1; slice < 8; ++slice) {
      const uint32_t previous = tables[slice - 1][byte];
      tables[slice][byte] = (previous >> 8) ^ tables[0][previous & 0xFF];
    }
  }
  return tables;
}

constexpr Table kSlices = make_slice_tables();

uint64_t load64(const uint8_t* p) {
  uint64_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

uint32_t slice_by_8(uint32_t crc, const uint8_t* p, size_t size) {
  for (; size >= 8; p += 8, size -= 8) {
    // Byte by byte, so that the order of the host's bytes does not matter.
    uint32_t low = crc ^ (p[0] | p[1] << 8 | p[2] << 16 | static_cast<uint32_t>(p[3]) << 24);
    crc = kSlices[7][low & 0xFF] ^ kSlices[6][(low >> 8) & 0xFF] ^ kSlices[5][(low >> 16) & 0xFF] ^
          kSlices[4][low >> 24] ^ kSlices[3][p[4]] ^ kSlices[2][p[5]] ^ kSlices[1][p[6]] ^
          kSlices[0][p[7]];
  }
  for (; size > 0; ++p, --size) crc = (crc >> 8) ^ kSlices[0][(crc ^ *p) & 0xFF];
  return crc;
}

#if defined(__x86_64__) || (defined(__aarch64__) && defined(__linux__))

// The instruction takes three cycles but can start every cycle, so three streams run side by side
// and are joined afterwards: crc(A B) = advance(crc(A), |B|) ^ crc(B), where advance() multiplies
// by x^(8 |B|) modulo the polynomial, a linear map that four lookups apply.
constexpr size_t kStreamBytes = 4096;

using AdvanceTable = std::array<std::array<uint32_t, 256>, 4>;

AdvanceTable make_advance_table() {
  static const uint8_t zeros[256] = {};
  AdvanceTable table{};
  for (size_t byte = 0; byte < 4; ++byte) {
    uint32_t images[8];
    for (int bit = 0; bit < 8; ++bit) {
      uint32_t crc = 1u << (8 * byte + bit);
      for (size_t done = 0; done < kStreamBytes; done += sizeof zeros) {
        crc = slice_by_8(crc, zeros, sizeof zeros);
      }
      images[bit] = crc;
    }
    for (uint32_t value = 0; value < 256; ++value) {
      for (int bit = 0; bit < 8; ++bit) table[byte][value] ^= value >> bit & 1 ? images[bit] : 0;
    }
  }
  return table;
}

uint32_t advance(const AdvanceTable& table, uint32_t crc) {
  return table[0][crc & 0xFF] ^ table[1][(crc >> 8) & 0xFF] ^ table[2][(crc >> 16) & 0xFF] ^
         table[3][crc >> 24];
}

#if defined(__x86_64__)
#define TRT_ET_CRC_TARGET __attribute__((target("sse4.2")))
TRT_ET_CRC_TARGET inline uint64_t step64(uint64_t crc, uint64_t data) {
  return _mm_crc32_u64(crc, data);
}
TRT_ET_CRC_TARGET inline uint32_t step8(uint32_t crc, uint8_t data) {
  return _mm_crc32_u8(crc, data);
}
bool has_crc_instruction() { return __builtin_cpu_supports("sse4.2"); }
#else
#define TRT_ET_CRC_TARGET __attribute__((target("+crc")))
TRT_ET_CRC_TARGET inline uint64_t step64(uint64_t crc, uint64_t data) {
  return __crc32cd(static_cast<uint32_t>(crc), data);
}
TRT_ET_CRC_TARGET inline uint32_t step8(uint32_t crc, uint8_t data) { return __crc32cb(crc, data); }
bool has_crc_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

TRT_ET_CRC_TARGET uint32_t by_instruction(uint32_t crc, const uint8_t* p, size_t size) {
  static const AdvanceTable table = make_advance_table();
  for (; size >= 3 * kStreamBytes; p += 3 * kStreamBytes, size -= 3 * kStreamBytes) {
    uint64_t first = crc, second = 0, third = 0;
    for (size_t i = 0; i < kStreamBytes; i += 8) {
      first = step64(first, load64(p + i));
      second = step64(second, load64(p + kStreamBytes + i));
      third = step64(third, load64(p + 2 * kStreamBytes + i));
    }
    crc = advance(table, static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
    crc = advance(table, crc) ^ static_cast<uint32_t>(third);
  }
  for (; size >= 8; p += 8, size -= 8) crc = static_cast<uint32_t>(step64(crc, load64(p)));
  for (; size > 0; ++p, --size) crc = step8(crc, *p);
  return crc;
}

#endif

// Inside, a CRC is inverted.
template <uint32_t (*form)(uint32_t, const uint8_t*, size_t)>
uint32_t inverted(uint32_t crc, const void* data, size_t size) {
  return ~form(~crc, static_cast<const uint8_t*>(data), size);
}

std::vector<Crc32cForm> find_forms() {
  std::vector<Crc32cForm> forms;
#if defined(__x86_64__) || (defined(__aarch64__) && defined(__linux__))
  if (has_crc_instruction()) forms.push_back({"instruction", inverted<by_instruction>});
#endif
  forms.push_back({"portable", inverted<slice_by_8>});
  return forms;
}

}  // namespace

const std::vector<Crc32cForm>& crc32c_forms() {
  static const auto* forms = new std::vector<Crc32cForm>(find_forms());
  return *forms;
}

uint32_t crc32c(uint32_t crc, const void* data, size_t size) {
  static const auto fastest = crc32c_forms().front().function;
  return fastest(crc, data, size);
}

}  // namespace trt_et
