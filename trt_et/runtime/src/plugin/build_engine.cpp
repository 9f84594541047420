// trt_et_build_engine; see include/trt_et/runtime.h.
#include <executorch/runtime/backend/interface.h>

#include <nlohmann/json.hpp>
#include <string>

#include "common/entry.h"
#include "delegate/engine_source.h"
#include "engine/compatibility.h"
#include "trt_et/runtime.h"

namespace trt_et {
namespace {

using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;

// What only the machine that built the engine knows: metadata of the engine's blob, as JSON.
std::string facts_of(const EngineSource& source, const void* engine, size_t size) {
  const bool rtx = std::string(source.provider().name) == "TensorRT-RTX";
  const nlohmann::json facts = {{"builder", rtx ? "tensorrt_rtx" : "tensorrt"},
                                {"library_version", plan_version(engine, size)},
                                {"gpu_name", source.gpu().name},
                                {"compute_capability", source.gpu().capability()},
                                {"target_platform", platform_name()}};
  return facts.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
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
  LoadOptions options;
  const executorch::runtime::BackendInitContext context(nullptr);
  TRT_ET_TRY(read_options(context, {}, &options));
  EngineSource source;
  TRT_ET_TRY(source.open(blob, size, find_data, options));
  cuda::DeviceGuard guard(source.api());
  TRT_ET_TRY(guard.enter(source.device()));
  TRT_ET_TRY(source.fit());
  BuiltEngine built;
  Status status = source.build(&built);
  if (!status.ok()) return cuda::unless_lost(source.api(), std::move(status));
  const std::string facts = facts_of(source, built.bytes, built.size);
  if (take(user, facts.c_str(), built.bytes, built.size) == 0) return {};
  return fail(Error::Internal, "the caller did not take the engine");
}

}  // namespace
}  // namespace trt_et

using namespace trt_et;

extern "C" int trt_et_build_engine(const void* blob, size_t size, trt_et_find_data find, void* user,
                                   trt_et_take_engine take) {
  clear_last_error();
  return enter([&] { return build(blob, size, find, user, take); }) == Error::Ok ? 0 : -1;
}
