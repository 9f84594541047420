// Mutants of small valid blobs through the parser: whatever the bytes are, it reads none that are
// not there, and what it accepts can be used. TRT_ET_FUZZ_MUTANTS says how many.
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "amounts.h"
#include "provider_support.h"
#include "tensorrt/build/onnx_model.h"
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

struct Seed {
  Bytes blob;
  bool has_checksum;
};

std::vector<Seed> make_seeds() {
  const std::string engine(20, '\xE5');
  const std::string more =
      R"(,"hardware_compatible":false,"serialized_metadata":"","target_platform":"linux_x86_64",)"
      R"("compute_capabilities":["8.6","8.9"],"gpu_name":"")";
  const std::string aliases =
      R"(,"aliased_io":[{"output":"y","input":"x","kind":"kv_cache_update"}])";
  const std::string reference = "{\"io_bindings\":[" + io("") + "],\"builder\":\"reference\"}";
  return {
      {make_blob(io("-1,3", range("1,3", "2,3", "4,3")), engine, more), true},
      {make_blob(io("1,2,3", R"(,"dim_order":[0,2,1])"), engine, more), true},
      {make_blob(io("8"), engine, aliases), true},
      {make_blob(io("2,3"), engine, "", true, false, R"({"weights":["a"],"profiles":[{}]})"), true},
      {pack("TRRF", reference, engine, true), true},
      {make_blob(foreign("in \\u00e9", true), engine, R"(,"device_id":3)", false), false}};
}

constexpr const char* kNumbers[] = {"-1", "128", "9223372036854775808", "1e400", "0.5"};
constexpr const char* kTexts[] = {"null",
                                  "true",
                                  "{}",
                                  "[[[[[[[[[[[[[[[[[[[[",
                                  "\"",
                                  "\\",
                                  "\\u0000",
                                  "\\ud800",
                                  "\xff\xfe",
                                  ",",
                                  "}",
                                  "{\"a\":",
                                  "\"device_id\":7,",
                                  "\"sha256\":\"\",",
                                  "\"shape\":[-1],"};

void mutate_text(Bytes& blob, Random& random) {
  const char* token = random.below(3) == 0 ? kNumbers[random.below(std::size(kNumbers))]
                                           : kTexts[random.below(std::size(kTexts))];
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
  const auto& field = kFields[random.below(std::size(kFields))];
  const uint64_t size = blob.size();
  const uint64_t values[] = {0, 1, 16, 32, size - 1, size, size + 1, random.below(SIZE_MAX)};
  const uint64_t large[] = {uint64_t{1} << 31, (uint64_t{1} << 32) - 16, uint64_t{1} << 63,
                            UINT64_MAX - 31};
  const uint64_t value = random.below(2) == 0 ? values[random.below(std::size(values))]
                                              : large[random.below(std::size(large))];
  put(blob, field[0], value, field[1]);
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

// A field of bytes in the wire format of protobuf; the number of the field is below 16.
std::string field(int number, const std::string& bytes) {
  std::string size;
  size_t left = bytes.size();
  for (; left >= 128; left >>= 7) size += static_cast<char>(left % 128 + 128);
  return static_cast<char>(number << 3 | 2) + size + static_cast<char>(left) + bytes;
}

using tensorrt::ExternalInitializer;

bool read_model(const Bytes& bytes, std::vector<ExternalInitializer>* found) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), exact.get());
  found->clear();
  return tensorrt::find_external_initializers(exact.get(), bytes.size(), found);
}

void test_onnx_models(Random& random, uint64_t mutants) {
  const std::string external(1, 14 << 3), location = field(1, "location") + field(2, "weights");
  const std::string tensor = field(8, "w") + field(13, location) + external + '\1';
  const std::string model = field(7, field(5, tensor) + field(5, field(8, "small")));
  const Bytes seed(model.begin(), model.end());
  std::vector<ExternalInitializer> found;
  CHECK(read_model(seed, &found) && found.size() == 1);
  CHECK(found[0].name == "w" && found[0].location == "weights");
  for (uint64_t i = 0; i < mutants; ++i) {
    Bytes bytes = seed;
    for (size_t left = 1 + random.below(3); left > 0; --left) mutate(bytes, random);
    (void)read_model(bytes, &found);
    for (const ExternalInitializer& one : found) {
      CHECK(one.name.size() + one.location.size() <= bytes.size());
    }
  }
}

std::string repeated(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += (i == 0 ? "" : ",") + text;
  return all;
}

// Metadata of megabytes, of which a reader whose work grows with the square of the size would have
// some for hours.
void test_large_metadata() {
  constexpr size_t kMany = 60000;
  std::string inputs, profile, keys;
  for (size_t i = 0; i < kMany; ++i) {
    const std::string name = "\"" + std::to_string(i) + "\"";
    inputs += "{\"name\":" + name + R"(,"dtype":"float32","shape":[],"is_input":true},)";
    profile += (i == 0 ? "" : ",") + name + ":[[],[],[]]";
    keys += "," + name + ":0";
  }
  inputs.pop_back();
  const auto parse = [](const std::string& document) {
    Metadata metadata;
    return parse_metadata(document.data(), document.size(), &metadata);
  };
  CHECK_FAILS(parse("{\"io_bindings\":[" + inputs + "]}"), "60000 io_bindings; at most 4096");
  const std::string network =
      "{\"io_bindings\":[],\"builder\":\"onnx\",\"network\":{\"profiles\":[";
  CHECK_FAILS(parse(network + "{" + profile + "}]}}"), "profiles names no input: 0");
  CHECK_FAILS(parse(network + repeated("{}", kMany) + "]}}"), "60000 profiles; at most 4096");
  CHECK_OK(parse("{\"io_bindings\":[]" + keys + "}"));
  CHECK_OK(parse("{\"io_bindings\":[],\"x\":[" + repeated("[[]]", kMany) + "]}"));
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
  test_onnx_models(random, mutants / 4);
  test_large_metadata();
  std::printf("R1 %llu mutants, 0 findings (%llu accepted)\n",
              static_cast<unsigned long long>(mutants), static_cast<unsigned long long>(accepted));
  CHECK(accepted < mutants || mutants == 0);
}
