// Mutants of small valid blobs through the parser: whatever the bytes are, it reads none that are
// not there, and what it accepts can be used. TRT_ET_FUZZ_MUTANTS says how many.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "amounts.h"
#include "check.h"
#include "parse_exactly.h"
#include "tests.h"

using namespace trt_et;

namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // In [0, end), or 0 where there is nothing to choose from.
  size_t below(size_t end) {
    state_ += 0x9E3779B97F4A7C15u;  // splitmix64
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return end == 0 ? 0 : static_cast<size_t>((z ^ (z >> 31)) % end);
  }

 private:
  uint64_t state_;
};

Bytes pack(const char* magic, const std::string& metadata, bool checksum) {
  return ::pack(magic, metadata, std::string(20, '\xE5'), checksum);
}

struct Seed {
  Bytes blob;
  bool has_checksum;
};

std::vector<Seed> make_seeds() {
  const std::string sha = std::string(64, 'a');
  const std::string ours =
      R"("hardware_compatible":false,"device_id":1,"serialized_metadata":"",)"
      R"("target_platform":"linux_x86_64","builder":"tensorrt_rtx","library_version":"1.5.0.114",)"
      R"("compute_capabilities":["8.6","8.9"],"gpu_name":"","sha256":")" +
      sha + "\"}";
  const std::string plain =
      R"({"io_bindings":[{"name":"x","dtype":"float32","shape":[2,3],"is_input":true},)"
      R"({"name":"y","dtype":"float16","shape":[],"is_input":false}],)";
  const std::string dynamic =
      R"({"io_bindings":[{"name":"x","dtype":"int64","shape":[-1,3],"is_input":true,)"
      R"("min_shape":[1,3],"opt_shape":[2,3],"max_shape":[4,3]},{"name":"z","dtype":"bool",)"
      R"("shape":[1,2,3],"is_input":false,"dim_order":[0,2,1]}],)";
  const std::string aliased =
      R"({"io_bindings":[{"name":"c","dtype":"float32","shape":[8],"is_input":true},)"
      R"({"name":"d","dtype":"float32","shape":[8],"is_input":false}],"aliased_io":)"
      R"([{"output":"d","input":"c","kind":"kv_cache_update"}],)";
  const std::string foreign =
      R"({"io_bindings":[{"name":"in \u00e9","dtype":"","shape":[],"is_input":true}],)"
      R"("hardware_compatible":true,"device_id":3,"serialized_metadata":"abc"})";
  std::string reference = plain + ours;
  reference.replace(reference.find("tensorrt_rtx"), 12, "reference");
  return {{pack("TR01", plain + ours, true), true},
          {pack("TR01", dynamic + ours, true), true},
          {pack("TR02", aliased + ours, true), true},
          {pack("TRRF", reference, true), true},
          {pack("TR01", foreign, false), false}};
}

constexpr const char* kTokens[] = {"-1",
                                   "0",
                                   "127",
                                   "128",
                                   "4294967296",
                                   "9223372036854775807",
                                   "9223372036854775808",
                                   "-9223372036854775809",
                                   "18446744073709551616",
                                   "1e400",
                                   "0.5",
                                   "1.0",
                                   "null",
                                   "true",
                                   "{}",
                                   "[]",
                                   "[[[[[[[[[[[[[[[[[[[[",
                                   "\"",
                                   "\\",
                                   "\\u0000",
                                   "\\ud800",
                                   "\xff\xfe",
                                   "\"device_id\":7,",
                                   "\"sha256\":\"\",",
                                   "\"shape\":[-1],",
                                   ",",
                                   "}",
                                   "{\"a\":"};

void mutate_text(Bytes& blob, Random& random) {
  const char* token = kTokens[random.below(sizeof kTokens / sizeof *kTokens)];
  const size_t length = std::strlen(token);
  const size_t at = 32 + random.below(blob.size() < 32 ? 0 : blob.size() - 32);
  if (at > blob.size()) return;
  if (random.below(2) == 0) {
    for (size_t i = 0; i < length && at + i < blob.size(); ++i) {
      blob[at + i] = static_cast<uint8_t>(token[i]);
    }
    return;
  }
  // In between, with the sizes made right, so that the text behind it stays what it was.
  blob.insert(blob.begin() + static_cast<std::ptrdiff_t>(at), token, token + length);
  const size_t padding = (16 - length % 16) % 16;
  const size_t metadata_size = blob.size() < 12 ? 0 : blob[8] | blob[9] << 8;
  const size_t engine_at = blob.size() < 16 ? 0 : blob[12] | blob[13] << 8;
  const size_t end = std::min(32 + metadata_size + length, blob.size());
  blob.insert(blob.begin() + static_cast<std::ptrdiff_t>(end), padding, ' ');
  put(blob, 8, metadata_size + length, 4);
  put(blob, 12, engine_at + length + padding, 4);
}

void mutate_header(Bytes& blob, Random& random) {
  constexpr size_t kFields[][2] = {{0, 4},  {4, 4},  {8, 4},  {12, 4}, {16, 8},
                                   {20, 4}, {24, 1}, {25, 1}, {26, 2}, {28, 4}};
  const auto& field = kFields[random.below(sizeof kFields / sizeof *kFields)];
  const uint64_t size = blob.size();
  const uint64_t values[] = {0,
                             1,
                             2,
                             16,
                             32,
                             48,
                             size - 1,
                             size,
                             size + 1,
                             size - 32,
                             uint64_t{1} << 31,
                             (uint64_t{1} << 32) - 1,
                             (uint64_t{1} << 32) - 16,
                             uint64_t{1} << 63,
                             UINT64_MAX,
                             UINT64_MAX - 31,
                             random.below(SIZE_MAX)};
  put(blob, field[0], values[random.below(sizeof values / sizeof *values)], field[1]);
}

void mutate(Bytes& blob, Random& random) {
  const size_t at = random.below(blob.size());
  switch (random.below(8)) {
    case 0:
      if (!blob.empty()) blob[at] ^= static_cast<uint8_t>(1u << random.below(8));
      break;
    case 1:
      if (!blob.empty()) blob[at] = static_cast<uint8_t>(random.below(256));
      break;
    case 2:
      blob.resize(at);
      break;
    case 3:
      blob.insert(blob.end(), random.below(40), static_cast<uint8_t>(random.below(256)));
      break;
    case 4: {
      const size_t length = std::min(random.below(40), blob.size() - at);
      blob.erase(blob.begin() + static_cast<std::ptrdiff_t>(at),
                 blob.begin() + static_cast<std::ptrdiff_t>(at + length));
      break;
    }
    case 5:
      mutate_header(blob, random);
      break;
    default:
      mutate_text(blob, random);
  }
}

}  // namespace

void test_blob_fuzz(const std::string&) {
  const uint64_t mutants = amount("TRT_ET_FUZZ_MUTANTS", 20000);
  const std::vector<Seed> seeds = make_seeds();
  for (const Seed& seed : seeds) CHECK(parse_exactly(seed.blob));
  Random random(amount("TRT_ET_FUZZ_SEED", 20260801));
  uint64_t accepted = 0;
  for (uint64_t i = 0; i < mutants; ++i) {
    const Seed& seed = seeds[random.below(seeds.size())];
    Bytes blob = seed.blob;
    for (size_t left = 1 + random.below(3); left > 0; --left) mutate(blob, random);
    const bool sealed = random.below(4) != 0;
    if (sealed) seal(blob);
    const bool fine = parse_exactly(blob);
    accepted += fine ? 1 : 0;
    // An accident that is not sealed again never gets through, unless it took the kind, the
    // checksum and the sha256 away: that is a blob of Torch-TensorRT, which has none of them.
    if (!fine || sealed || !seed.has_checksum || blob == seed.blob) continue;
    CHECK(blob[25] == 0 && blob[28] == 0 && blob[29] == 0 && blob[30] == 0 && blob[31] == 0);
  }
  std::printf("R1 %llu mutants, 0 findings (%llu accepted)\n",
              static_cast<unsigned long long>(mutants), static_cast<unsigned long long>(accepted));
  CHECK(accepted < mutants || mutants == 0);
}
