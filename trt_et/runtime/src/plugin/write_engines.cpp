// trt_et_write_engines; see include/trt_et/runtime.h.
#include <exception>
#include <set>
#include <string>

#include "common/log.h"
#include "found_data.h"
#include "network_engine.h"
#include "program_file.h"
#include "trt_et/runtime.h"

namespace trt_et {
namespace {

using executorch::runtime::FreeableBuffer;

FoundData::Buffer find_in(const ProgramFile& file, std::string_view key) {
  const auto found = file.named_data().find(std::string(key));
  if (found == file.named_data().end()) return Error::NotFound;
  return FreeableBuffer(file.segment(found->second), file.segment_size(found->second), nullptr);
}

// Segments of networks, and of the weights that only they use.
struct Networks {
  std::set<size_t> blobs;
  std::set<size_t> weights;
};

Status find_networks(const ProgramFile& file, Networks* networks) {
  std::set<std::string> theirs, others;
  for (const ProgramFile::Delegate& delegate : file.delegates()) {
    if (delegate.backend != TRT_ET_BACKEND_NAME) continue;
    Blob blob;
    TRT_ET_TRY(parse_blob(delegate.bytes, delegate.size, &blob));
    auto& keys = blob.is_network() ? theirs : others;
    keys.insert(blob.metadata.weights.begin(), blob.metadata.weights.end());
    if (!blob.is_network()) continue;
    if (!delegate.in_segment) {
      return fail(Error::NotSupported,
                  "a network is inside the program's flatbuffer: export it with "
                  "ExecutorchBackendConfig(extract_delegate_segments=True)");
    }
    networks->blobs.insert(delegate.segment);
  }
  if (networks->blobs.empty()) {
    return fail(Error::InvalidArgument,
                "the program has no ONNX networks; export it with builder='onnx'");
  }
  for (const auto& [key, segment] : file.named_data()) {
    if (theirs.count(key) != 0 && others.count(key) == 0) networks->weights.insert(segment);
  }
  // One segment may have several names.
  for (const auto& [key, segment] : file.named_data()) {
    if (theirs.count(key) == 0 || others.count(key) != 0) networks->weights.erase(segment);
  }
  return {};
}

// Builds the engine of a network and appends its blob.
Status append_engine(const uint8_t* blob, size_t size, const FoundData& data,
                     const ProgramFile::Append& append) {
  return build_network_engine(
      blob, size, data, [&](const BuiltFacts& facts, const void* engine, size_t bytes) -> Status {
        std::string front;
        TRT_ET_TRY(encode_front(blob, facts, engine, bytes, &front));
        TRT_ET_TRY(append(front.data(), front.size()));
        return append(engine, bytes);
      });
}

Status write_engines(const void* program, size_t size, const char* output, int* count) {
  if (program == nullptr || output == nullptr) {
    return fail(Error::InvalidArgument, "trt_et_write_engines: program or output is null");
  }
  ProgramFile file;
  Networks networks;
  TRT_ET_TRY(file.open(program, size));
  TRT_ET_TRY(find_networks(file, &networks));
  const FoundData data([&](std::string_view key) { return find_in(file, key); });
  *count = static_cast<int>(networks.blobs.size());
  return file.write(output, [&](size_t segment, const ProgramFile::Append& append) -> Status {
    const uint8_t* bytes = file.segment(segment);
    const size_t length = file.segment_size(segment);
    if (networks.weights.count(segment) != 0) return {};
    if (networks.blobs.count(segment) == 0) return append(bytes, length);
    return append_engine(bytes, length, data, append);
  });
}

}  // namespace
}  // namespace trt_et

extern "C" int trt_et_write_engines(const void* program, size_t size, const char* output) {
  using namespace trt_et;
  clear_last_error();
  const LogScope scope;
  try {
    int count = 0;
    return report(write_engines(program, size, output, &count)) == Error::Ok ? count : -1;
  } catch (const std::exception& error) {
    remember_error(error.what());
    return -1;
  }
}
