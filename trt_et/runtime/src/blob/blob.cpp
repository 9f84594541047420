#include "blob.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <new>

#include "common/log.h"
#include "crc32c.h"

namespace trt_et {
namespace {

constexpr size_t kHeaderSize = 32;
constexpr size_t kEngineAlignment = 16;
constexpr size_t kChecksumOffset = 28;
constexpr size_t kMaxMetadata = size_t{16} << 20;

// Little-endian, whatever the host is.
template <typename T>
T read_le(const uint8_t* p) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(p[i]) << 8 * i);
  return value;
}

struct Header {
  uint32_t metadata_offset;
  uint32_t metadata_size;
  uint32_t engine_offset;
  uint64_t engine_size;
  uint8_t checksum_kind;
  uint16_t zero;
  uint32_t checksum;
};

Header read_header(const uint8_t* p) {
  return Header{read_le<uint32_t>(p + 4),
                read_le<uint32_t>(p + 8),
                read_le<uint32_t>(p + 12),
                read_le<uint64_t>(p + 16),
                p[25],
                read_le<uint16_t>(p + 26),
                read_le<uint32_t>(p + 28)};
}

Status check_layout(const Header& header, size_t total) {
  if (header.metadata_offset < kHeaderSize || header.metadata_offset > total ||
      header.metadata_size > total - header.metadata_offset) {
    return fail(Error::InvalidProgram, "engine blob of %zu bytes: metadata [%u, +%u] lies outside",
                total, header.metadata_offset, header.metadata_size);
  }
  if (header.metadata_size > kMaxMetadata) {
    return fail(Error::InvalidProgram, "engine blob has %u bytes of metadata; at most %zu allowed",
                header.metadata_size, kMaxMetadata);
  }
  const uint64_t metadata_end = uint64_t{header.metadata_offset} + header.metadata_size;
  if (header.engine_offset % kEngineAlignment != 0 || header.engine_offset < metadata_end ||
      header.engine_offset > total) {
    return fail(
        Error::InvalidProgram,
        "engine blob of %zu bytes: engine offset %u is misaligned, overlaps or lies outside", total,
        header.engine_offset);
  }
  if (header.engine_size > total - header.engine_offset) {
    return fail(Error::InvalidProgram, "engine blob of %zu bytes: engine [%u, +%llu] lies outside",
                total, header.engine_offset, static_cast<unsigned long long>(header.engine_size));
  }
  return {};
}

// `engine`: where the bytes from the engine on are.
Status check_checksum(const Header& header, const uint8_t* data, const uint8_t* engine,
                      size_t total) {
  if (header.checksum_kind > 1 || header.zero != 0) {
    return fail(Error::InvalidProgram, "engine blob has checksum kind %u; known are 0 and 1",
                header.checksum_kind);
  }
  if (header.checksum_kind == 0) {
    if (header.checksum == 0) return {};
    return fail(Error::InvalidProgram, "engine blob has a checksum of no kind: it is corrupt");
  }
  const size_t behind = total - header.engine_offset - static_cast<size_t>(header.engine_size);
  if (behind != 0) {
    return fail(Error::InvalidProgram, "engine blob has %zu bytes too many", behind);
  }
  const uint8_t zeros[4] = {};
  uint32_t found = crc32c(0, data, kChecksumOffset);
  found = crc32c(found, zeros, sizeof zeros);
  found = crc32c(found, data + kHeaderSize, header.engine_offset - kHeaderSize);
  found = crc32c(found, engine, total - header.engine_offset);
  if (found != header.checksum) {
    return fail(Error::InvalidProgram, "engine blob is corrupt: checksum 0x%08x, expected 0x%08x",
                found, header.checksum);
  }
  return {};
}

// Facts of the container and of the metadata that must go together.
Status check_agreement(const Blob& blob) {
  const Metadata& metadata = blob.metadata;
  if (!metadata.sha256.empty() && !blob.has_checksum) {
    return fail(Error::InvalidProgram,
                "engine blob has a sha256 but no checksum: its header is corrupt");
  }
  if (!metadata.aliases.empty() && std::string_view(blob.magic) != "TR02") {
    return fail(Error::InvalidProgram, "engine blob has aliased outputs but the magic %s",
                blob.magic);
  }
  if ((metadata.builder == "reference") != blob.is_reference()) {
    return fail(Error::InvalidProgram,
                "engine blob's builder '%.40s' does not go with the magic %s",
                metadata.builder.c_str(), blob.magic);
  }
  for (const Binding& binding : metadata.bindings) {
    // Its program knows upper bounds only, so that nothing would tell a dynamic output.
    if (blob.is_reference() && binding.dtype.empty()) {
      return fail(Error::InvalidProgram, "reference engine has no dtype for its binding '%.60s'",
                  binding.name.c_str());
    }
  }
  return {};
}

// `engine`: null, or the part of the blob that is elsewhere, and is not counted in `size`.
Status parse(const uint8_t* data, size_t size, const uint8_t* engine, size_t engine_size,
             Blob* blob) {
  if (data == nullptr || size < kHeaderSize) {
    return fail(Error::InvalidProgram, "engine blob has %zu bytes; its header alone needs %zu",
                size, kHeaderSize);
  }
  std::memcpy(blob->magic, data, 4);
  blob->magic[4] = '\0';
  const std::string_view magic(blob->magic, 4);
  if (magic != "TR01" && magic != "TR02" && magic != "TRRF") {
    return fail(Error::InvalidProgram,
                "not an engine blob: magic %02x %02x %02x %02x, expected TR01, TR02 or TRRF",
                data[0], data[1], data[2], data[3]);
  }
  const Header header = read_header(data);
  const size_t total = size + engine_size;
  TRT_ET_TRY(check_layout(header, total));
  if (engine != nullptr && header.engine_offset != size) {
    return fail(Error::InvalidProgram, "engine blob's front has %zu bytes, expected %u", size,
                header.engine_offset);
  }
  if (engine == nullptr) engine = data + header.engine_offset;
  TRT_ET_TRY(check_checksum(header, data, engine, total));
  blob->has_checksum = header.checksum_kind == 1;
  blob->engine_offset = header.engine_offset;
  blob->engine = engine;
  blob->engine_size = static_cast<size_t>(header.engine_size);
  TRT_ET_TRY(parse_metadata(reinterpret_cast<const char*>(data) + header.metadata_offset,
                            header.metadata_size, &blob->metadata));
  return check_agreement(*blob);
}

}  // namespace

bool Binding::is_dynamic() const {
  return std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; });
}

Status parse_blob(const void* data, size_t size, Blob* blob) noexcept {
  return parse_blob(data, size, nullptr, 0, blob);
}

Status parse_blob(const void* front, size_t front_size, const void* engine, size_t engine_size,
                  Blob* blob) noexcept {
  try {
    return parse(static_cast<const uint8_t*>(front), front_size,
                 static_cast<const uint8_t*>(engine), engine_size, blob);
  } catch (const std::bad_alloc&) {
    return {Error::MemoryAllocationFailed, "no memory to parse an engine blob"};
  } catch (const std::exception&) {
    return {Error::InvalidProgram, "engine blob's metadata cannot be read"};
  }
}

bool have_same_interface(const Metadata& a, const Metadata& b) {
  const auto same = [](const Binding& one, const Binding& other) {
    return one.is_input == other.is_input && one.dtype == other.dtype && one.shape == other.shape &&
           one.min_shape == other.min_shape && one.max_shape == other.max_shape &&
           one.dim_order == other.dim_order && one.value_of == other.value_of;
  };
  const auto places = [](const Metadata& of) {
    std::map<std::string_view, size_t> by_name;
    for (size_t i = 0; i < of.bindings.size(); ++i) by_name[of.bindings[i].name] = i;
    return by_name;
  };
  auto in_a = places(a), in_b = places(b);
  const auto same_alias = [&](const Alias& one, const Alias& other) {
    return in_a[one.output] == in_b[other.output] && in_a[one.input] == in_b[other.input];
  };
  return std::equal(a.bindings.begin(), a.bindings.end(), b.bindings.begin(), b.bindings.end(),
                    same) &&
         std::equal(a.aliases.begin(), a.aliases.end(), b.aliases.begin(), b.aliases.end(),
                    same_alias);
}

Status device_of(const Blob& blob, int* device) {
  switch (blob.metadata.device_id_state) {
    case DeviceIdState::present:
      *device = blob.metadata.device_id;
      return {};
    case DeviceIdState::unreadable:
      return fail(Error::InvalidProgram,
                  "engine blob's device_id is unreadable: expected an integer in 0..127");
    case DeviceIdState::missing:
      break;
  }
  if (blob.has_checksum) {
    return fail(Error::InvalidProgram, "engine blob has no device_id: export the model again");
  }
  log(LogLevel::info,
      "TensorRTBackend: engine blob of Torch-TensorRT has no device_id, taken as 0");
  *device = 0;
  return {};
}

}  // namespace trt_et
