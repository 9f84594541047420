#include "parse_exactly.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "blob/blob.h"
#include "blob/crc32c.h"
#include "check.h"
#include "describe_blob.h"

using namespace trt_et;

void put(Bytes& bytes, size_t at, uint64_t value, size_t size) {
  for (size_t i = 0; i < size && at + i < bytes.size(); ++i) {
    bytes[at + i] = static_cast<uint8_t>(value >> 8 * i);
  }
}

void seal(Bytes& blob) {
  if (blob.size() < 32) return;
  put(blob, 28, 0, 4);
  put(blob, 28, crc32c(0, blob.data(), blob.size()), 4);
}

Bytes pack(const char* magic, const std::string& metadata, const std::string& engine,
           bool checksum) {
  const size_t engine_at = (32 + metadata.size() + 15) / 16 * 16;
  Bytes blob(engine_at + engine.size());
  std::memcpy(blob.data(), magic, 4);
  put(blob, 4, 32, 4);
  put(blob, 8, metadata.size(), 4);
  put(blob, 12, engine_at, 4);
  put(blob, 16, engine.size(), 8);
  blob[24] = 1;
  blob[25] = checksum ? 1 : 0;
  std::memcpy(blob.data() + 32, metadata.data(), metadata.size());
  std::memcpy(blob.data() + engine_at, engine.data(), engine.size());
  if (checksum) seal(blob);
  return blob;
}

namespace {

std::unique_ptr<uint8_t[]> copy_of(const uint8_t* from, size_t size) {
  std::unique_ptr<uint8_t[]> copy(new uint8_t[size]);
  if (size > 0) std::memcpy(copy.get(), from, size);
  return copy;
}

// An engine beside the program comes in two parts, and means the same.
void parse_parts(const Bytes& bytes, const std::string& json) {
  const size_t announced = bytes.size() < 16 ? 0 : bytes[12] | bytes[13] << 8;
  const size_t size = std::min(announced, bytes.size());
  const auto front = copy_of(bytes.data(), size),
             engine = copy_of(bytes.data() + size, bytes.size() - size);
  Blob blob;
  const Status status = parse_blob(front.get(), size, engine.get(), bytes.size() - size, &blob);
  CHECK(status.ok() || (status.error == Error::InvalidProgram && !status.text.empty()));
  if (size == blob.engine_offset) CHECK(status.ok() == !json.empty());
  if (!status.ok()) return;
  CHECK(blob.engine == engine.get() && describe_blob(blob) == json);
}

}  // namespace

bool parse_exactly(const Bytes& bytes) {
  // Memory of exactly the blob's size, so that a sanitizer sees every read behind it.
  const auto data = copy_of(bytes.data(), bytes.size());
  Blob blob;
  const Status status = parse_blob(data.get(), bytes.size(), &blob);
  if (!status.ok()) {
    CHECK(status.error == Error::InvalidProgram && !status.text.empty());
    parse_parts(bytes, "");
    return false;
  }
  CHECK(blob.engine_offset <= bytes.size() &&
        blob.engine_size <= bytes.size() - blob.engine_offset);
  CHECK(blob.engine == data.get() + blob.engine_offset && blob.engine_offset % 16 == 0);
  int device = -1;
  if (blob.has_checksum && device_of(blob, &device).ok()) CHECK(device >= 0 && device <= 127);
  for (const Binding& binding : blob.metadata.bindings) {
    if (!binding.is_dynamic()) continue;
    CHECK(binding.min_shape.size() == binding.shape.size() &&
          binding.max_shape.size() == binding.shape.size());
  }
  const std::string json = describe_blob(blob);
  CHECK(!json.empty() && json.front() == '{' && json.back() == '}');
  parse_parts(bytes, json);
  return true;
}
