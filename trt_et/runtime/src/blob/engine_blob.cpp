#include "engine_blob.h"

#include <nlohmann/json.hpp>

#include "bytes.h"
#include "common/sha256.h"
#include "crc32c.h"

namespace trt_et {
namespace {

// As trt_et/blob/metadata.py orders the keys.
std::string metadata_of(const uint8_t* network, const BuiltFacts& facts,
                        const std::string& sha256) {
  using Json = nlohmann::ordered_json;
  const auto* text = network + read_le<uint32_t>(network + 4);
  Json document = Json::parse(text, text + read_le<uint32_t>(network + 8));
  document["hardware_compatible"] = facts.rtx;
  document["target_platform"] = facts.target_platform;
  const Json precision = document.value("precision", Json(""));
  for (const char* key : {"builder", "library_version", "compute_capabilities", "gpu_name",
                          "precision", "sha256", "network"}) {
    document.erase(key);
  }
  document["builder"] = facts.rtx ? "tensorrt_rtx" : "tensorrt";
  document["library_version"] = facts.library_version;
  if (!facts.rtx) {
    document["compute_capabilities"] = Json::array({facts.compute_capability});
    if (!facts.gpu_name.empty()) document["gpu_name"] = facts.gpu_name;
  }
  if (precision != "") document["precision"] = precision;
  document["sha256"] = sha256;
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Status encode_front(const void* network, const BuiltFacts& facts, const void* engine, size_t size,
                    std::string* front) {
  const auto* bytes = static_cast<const uint8_t*>(network);
  const std::string metadata = metadata_of(bytes, facts, sha256(engine, size));
  const size_t end = kBlobHeaderSize + metadata.size();
  const size_t engine_offset = (end + kEngineAlignment - 1) / kEngineAlignment * kEngineAlignment;
  if (engine_offset > UINT32_MAX) return fail(Error::InvalidProgram, "too much metadata");
  front->assign(reinterpret_cast<const char*>(bytes), 4);  // the magic
  append_le<uint32_t>(front, kBlobHeaderSize);
  append_le(front, static_cast<uint32_t>(metadata.size()));
  append_le(front, static_cast<uint32_t>(engine_offset));
  append_le<uint64_t>(front, size);
  append_le<uint32_t>(front, 0x0101);  // 1; the kind of the checksum, CRC-32C
  append_le<uint32_t>(front, 0);
  *front += metadata;
  front->resize(engine_offset);
  const uint32_t checksum = crc32c(crc32c(0, front->data(), front->size()), engine, size);
  write_le(reinterpret_cast<uint8_t*>(front->data()) + kBlobHeaderSize - sizeof checksum, checksum);
  return {};
}

}  // namespace trt_et
