#include "crc32c_fold.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trt_et {

#if defined(__x86_64__)
namespace {

// x^power modulo the polynomial, bits reflected as in the CRC.
constexpr uint32_t power_of_x(unsigned power) {
  uint32_t value = 0x80000000u;
  for (unsigned i = 0; i < power; ++i) value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0);
  return value;
}

// A lane of 16 bytes counts as much, modulo the polynomial, as its two halves times these, added to
// the lane kFoldedBytes further on. The halves stand 64 bits apart; a product of reflected numbers
// of 64 bits is shifted by one, and the constants lie in the low 32 bits.
constexpr unsigned kDistance = 8 * kFoldedBytes;
constexpr uint64_t kLow = power_of_x(kDistance + 64 - 1 - 32);
constexpr uint64_t kHigh = power_of_x(kDistance - 1 - 32);

__attribute__((target("avx2,vpclmulqdq"))) size_t fold(uint32_t state, const uint8_t* data,
                                                       size_t size, uint8_t* folded) {
  constexpr size_t kWidth = 32, kCount = kFoldedBytes / kWidth;
  const __m256i factors = _mm256_set_epi64x(kHigh, kLow, kHigh, kLow);
  const auto load = [data](size_t at) __attribute__((target("avx2"))) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + at));
  };
  __m256i lanes[kCount];
  for (size_t i = 0; i < kCount; ++i) lanes[i] = load(kWidth * i);
  lanes[0] = _mm256_xor_si256(lanes[0], _mm256_set_epi64x(0, 0, 0, state));
  size_t done = kFoldedBytes;
  for (; size - done >= kFoldedBytes; done += kFoldedBytes) {
    for (size_t i = 0; i < kCount; ++i) {
      const __m256i low = _mm256_clmulepi64_epi128(lanes[i], factors, 0x00);
      const __m256i high = _mm256_clmulepi64_epi128(lanes[i], factors, 0x11);
      lanes[i] = _mm256_xor_si256(_mm256_xor_si256(low, high), load(done + kWidth * i));
    }
  }
  for (size_t i = 0; i < kCount; ++i) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(folded + kWidth * i), lanes[i]);
  }
  return done;
}

}  // namespace

Fold find_fold() {
  const bool can = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
  return can ? fold : nullptr;
}

#else

Fold find_fold() { return nullptr; }

#endif

}  // namespace trt_et
