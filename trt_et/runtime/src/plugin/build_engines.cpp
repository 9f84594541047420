// trt_et_build_engine and trt_et_write_engines; see include/trt_et/runtime.h.
#include <executorch/runtime/backend/interface.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "blob/engine_blob.h"
#include "common/entry.h"
#include "delegate/engine_source.h"
#include "engine/compatibility.h"
#include "program_file.h"
#include "trt_et/runtime.h"

namespace trt_et {
namespace {

using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;

using TakeBuiltEngine =
    std::function<Status(const BuiltFacts& facts, const void* engine, size_t size)>;

// Builds the engine of a network, as a load of its program would. `blob` are a delegate's bytes;
// the engine's are valid during the call of `take`.
Status build_network_engine(const void* blob, size_t size, const EngineSource::FindData& find_data,
                            const TakeBuiltEngine& take) {
  LoadOptions options;
  const executorch::runtime::BackendInitContext context(nullptr);
  TRT_ET_TRY(read_options(context, {}, &options));
  EngineSource source;
  TRT_ET_TRY(source.open(blob, size, find_data, options));
  cuda::DeviceGuard guard(source.api());
  TRT_ET_TRY(guard.enter(source.device()));
  TRT_ET_TRY(source.fit());
  return source.build([&](const void* engine, size_t bytes) {
    const cuda::DeviceInfo& gpu = source.gpu();
    const BuiltFacts facts = {std::string(source.provider().name) == "TensorRT-RTX",
                              plan_version(engine, bytes), gpu.name, gpu.capability(),
                              platform_name()};
    return take(facts, engine, bytes);
  });
}

// Metadata of the engine's blob, as JSON.
std::string text_of(const BuiltFacts& facts) {
  const nlohmann::json text = {{"builder", facts.rtx ? "tensorrt_rtx" : "tensorrt"},
                               {"library_version", facts.library_version},
                               {"gpu_name", facts.gpu_name},
                               {"compute_capability", facts.compute_capability},
                               {"target_platform", facts.target_platform}};
  return text.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

Status build(const void* blob, size_t size, trt_et_find_data find, void* user,
             trt_et_take_engine take) {
  if (blob == nullptr || take == nullptr) {
    return fail(Error::InvalidArgument, "trt_et_build_engine: blob or take is null");
  }
  const auto find_data = [&](const char* key) -> Result<FreeableBuffer> {
    const void* bytes = nullptr;
    size_t found = 0;
    if (find == nullptr || find(user, key, &bytes, &found) != 0) return Error::NotFound;
    return FreeableBuffer(bytes, found, nullptr);
  };
  return build_network_engine(
      blob, size, find_data,
      [&](const BuiltFacts& facts, const void* engine, size_t bytes) -> Status {
        if (take(user, text_of(facts).c_str(), engine, bytes) == 0) return {};
        return fail(Error::Internal, "the caller did not take the engine");
      });
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

Status write_engines(const void* program, size_t size, const char* output, int* count) {
  if (program == nullptr || output == nullptr) {
    return fail(Error::InvalidArgument, "trt_et_write_engines: program or output is null");
  }
  ProgramFile file;
  Networks networks;
  TRT_ET_TRY(file.open(program, size));
  TRT_ET_TRY(find_networks(file, &networks));
  const auto find_data = [&](const char* key) -> Result<FreeableBuffer> {
    const auto found = file.named_data().find(key);
    if (found == file.named_data().end()) return Error::NotFound;
    return FreeableBuffer(file.segment(found->second), file.segment_size(found->second), nullptr);
  };
  *count = static_cast<int>(networks.blobs.size());
  return file.write(output, [&](size_t segment, const ProgramFile::Append& append) -> Status {
    const uint8_t* old = file.segment(segment);
    const size_t length = file.segment_size(segment);
    if (networks.weights.count(segment) != 0) return {};
    if (networks.blobs.count(segment) == 0) return append(old, length);
    return build_network_engine(
        old, length, find_data,
        [&](const BuiltFacts& facts, const void* engine, size_t bytes) -> Status {
          std::string front;
          TRT_ET_TRY(encode_front(old, facts, engine, bytes, &front));
          TRT_ET_TRY(append(front.data(), front.size()));
          return append(engine, bytes);
        });
  });
}

}  // namespace
}  // namespace trt_et

using namespace trt_et;

extern "C" int trt_et_build_engine(const void* blob, size_t size, trt_et_find_data find, void* user,
                                   trt_et_take_engine take) {
  clear_last_error();
  return enter([&] { return build(blob, size, find, user, take); }) == Error::Ok ? 0 : -1;
}

extern "C" int trt_et_write_engines(const void* program, size_t size, const char* output) {
  int count = 0;
  clear_last_error();
  const Error error = enter([&] { return write_engines(program, size, output, &count); });
  return error == Error::Ok ? count : -1;
}
