#include "parse_exactly.h"

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

bool parse_exactly(const Bytes& bytes) {
  // Memory of exactly the blob's size, so that a sanitizer sees every read behind it.
  const std::unique_ptr<uint8_t[]> data(new uint8_t[bytes.size()]);
  if (!bytes.empty()) std::memcpy(data.get(), bytes.data(), bytes.size());
  Blob blob;
  const Status status = parse_blob(data.get(), bytes.size(), &blob);
  if (!status.ok()) {
    CHECK(status.error == Error::InvalidProgram && !status.text.empty());
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
  return true;
}
