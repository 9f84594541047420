// Every edit of one byte, and every truncation, of a blob of 4 KiB is refused: its checksum covers
// all of it. TRT_ET_EDITS_PER_BYTE says how many of the 255 other values each byte gets.
#include <cstring>

#include "amounts.h"
#include "blob/blob.h"
#include "provider_support.h"
#include "tests.h"

using namespace trt_et;

namespace {

Bytes blob_of_4_kib() {
  constexpr size_t kSize = 4096;
  const size_t around = make_blob(io("2,8"), "").size();
  return make_blob(io("2,8"), std::string(kSize - around, 'e'));
}

void check_refused(const uint8_t* data, size_t size) {
  Blob blob;
  const Status status = parse_blob(data, size, &blob);
  CHECK(status.error == Error::InvalidProgram && !status.text.empty());
}

}  // namespace

void test_blob_edits(const std::string&) {
  Bytes bytes = blob_of_4_kib();
  CHECK(bytes.size() == 4096);
  Blob blob;
  CHECK_OK(parse_blob(bytes.data(), bytes.size(), &blob));
  const uint64_t per_byte = amount("TRT_ET_EDITS_PER_BYTE", 8);
  uint64_t edits = 0;
  for (uint8_t& byte : bytes) {
    const uint8_t original = byte;
    for (uint64_t i = 1; i <= per_byte; ++i, ++edits) {
      byte = static_cast<uint8_t>(original ^ (per_byte < 255 ? 1u << (i % 8) : i));
      check_refused(bytes.data(), bytes.size());
    }
    byte = original;
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    // Memory of exactly that size, so that a sanitizer sees every read behind it.
    const std::unique_ptr<uint8_t[]> cut(new uint8_t[size]);
    if (size > 0) std::memcpy(cut.get(), bytes.data(), size);
    check_refused(cut.get(), size);
  }
  std::printf("R2 %llu edits, %zu truncations, 0 accepted\n",
              static_cast<unsigned long long>(edits), bytes.size());
}
