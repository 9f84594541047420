#include "sha256.h"

#include <array>
#include <cstdint>
#include <cstring>

namespace trt_et {
namespace {

constexpr size_t kBlock = 64;
using State = std::array<uint32_t, 8>;

constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t rotated(uint32_t word, int by) { return word >> by | word << (32 - by); }

void add_block(const uint8_t* block, State& state) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = static_cast<uint32_t>(block[4 * i]) << 24 |
           static_cast<uint32_t>(block[4 * i + 1]) << 16 |
           static_cast<uint32_t>(block[4 * i + 2]) << 8 | block[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + w[i - 7] +
           (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
  }
  State s = state;
  for (int i = 0; i < 64; ++i) {
    const uint32_t sum1 = rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25);
    const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
    const uint32_t first = s[7] + sum1 + choice + kRound[i] + w[i];
    const uint32_t sum0 = rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22);
    const uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    s = {first + sum0 + majority, s[0], s[1], s[2], s[3] + first, s[4], s[5], s[6]};
  }
  for (size_t i = 0; i < state.size(); ++i) state[i] += s[i];
}

}  // namespace

std::string sha256(const void* bytes, size_t size) {
  State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto* data = static_cast<const uint8_t*>(bytes);
  const size_t whole = size / kBlock * kBlock, rest = size - whole;
  for (size_t at = 0; at < whole; at += kBlock) add_block(data + at, state);
  uint8_t last[2 * kBlock] = {};
  if (rest > 0) std::memcpy(last, data + whole, rest);
  last[rest] = 0x80;
  const size_t length = rest + 9 > kBlock ? 2 * kBlock : kBlock;
  const uint64_t bits = static_cast<uint64_t>(size) * 8;
  for (int i = 0; i < 8; ++i) last[length - 1 - i] = static_cast<uint8_t>(bits >> 8 * i);
  for (size_t at = 0; at < length; at += kBlock) add_block(last + at, state);
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[word >> shift & 15];
  }
  return text;
}

}  // namespace trt_et
