// trt_et_build_engine; see include/trt_et/runtime.h.
#include <executorch/runtime/backend/interface.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "common/log.h"
#include "delegate/engine_source.h"
#include "engine/compatibility.h"
#include "engine/provider_library.h"
#include "trt_et/runtime.h"

namespace trt_et {
namespace {

using executorch::runtime::BackendInitContext;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::NamedDataMap;
using executorch::runtime::Result;

// The caller's named data.
class CallersData final : public NamedDataMap {
 public:
  CallersData(trt_et_find_data find, void* user) : find_(find), user_(user) {}

  Result<FreeableBuffer> get_data(std::string_view key) const override {
    const void* bytes = nullptr;
    size_t size = 0;
    if (find_ == nullptr || find_(user_, std::string(key).c_str(), &bytes, &size) != 0) {
      return Error::NotFound;
    }
    return FreeableBuffer(bytes, size, nullptr);
  }
  Result<const executorch::runtime::TensorLayout> get_tensor_layout(
      std::string_view) const override {
    return Error::NotSupported;
  }
  Error load_data_into(std::string_view, void*, size_t) const override {
    return Error::NotSupported;
  }
  Result<uint32_t> get_num_keys() const override { return Error::NotSupported; }
  Result<const char*> get_key(uint32_t) const override { return Error::NotSupported; }

 private:
  trt_et_find_data find_;
  void* user_;
};

// What the metadata of the engine's blob says.
std::string facts_of(const EngineSource& source, const void* engine, size_t size) {
  const bool rtx = std::string(source.provider().name) == "TensorRT-RTX";
  nlohmann::json facts;
  facts["builder"] = rtx ? "tensorrt_rtx" : "tensorrt";
  facts["library_version"] = plan_version(engine, size);
  facts["gpu_name"] = source.gpu().name;
  facts["compute_capability"] =
      std::to_string(source.gpu().major) + "." + std::to_string(source.gpu().minor);
  facts["target_platform"] = platform_name();
  return facts.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

Status build(const void* blob, size_t size, trt_et_find_data find, void* user,
             trt_et_take_engine take) {
  if (blob == nullptr || take == nullptr) {
    return fail(Error::InvalidArgument, "trt_et_build_engine: blob or take is null");
  }
  LoadOptions options;
  const BackendInitContext context(nullptr);
  TRT_ET_TRY(read_options(context, {}, &options));
  const CallersData data(find, user);
  EngineSource source;
  TRT_ET_TRY(source.open(blob, size, &data, options));
  cuda::DeviceGuard guard(source.api());
  TRT_ET_TRY(guard.enter(source.device()));
  TRT_ET_TRY(source.fit());
  return source.build([&](const void* engine, size_t bytes) -> Status {
    if (take(user, facts_of(source, engine, bytes).c_str(), engine, bytes) == 0) return {};
    return fail(Error::Internal, "the caller did not take the engine");
  });
}

}  // namespace
}  // namespace trt_et

extern "C" int trt_et_build_engine(const void* blob, size_t size, trt_et_find_data find, void* user,
                                   trt_et_take_engine take) {
  using namespace trt_et;
  clear_last_error();
  const LogScope scope;
  try {
    return report(build(blob, size, find, user, take)) == Error::Ok ? 0 : -1;
  } catch (const std::exception& error) {
    remember_error(error.what());
    return -1;
  }
}
