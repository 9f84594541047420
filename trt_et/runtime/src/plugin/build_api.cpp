// trt_et_build_engine; see include/trt_et/runtime.h.
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "common/log.h"
#include "network_engine.h"
#include "trt_et/runtime.h"

namespace trt_et {
namespace {

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
std::string text_of(const BuiltFacts& facts) {
  nlohmann::json text;
  text["builder"] = facts.rtx ? "tensorrt_rtx" : "tensorrt";
  text["library_version"] = facts.library_version;
  text["gpu_name"] = facts.gpu_name;
  text["compute_capability"] = facts.compute_capability;
  text["target_platform"] = facts.target_platform;
  return text.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

Status build(const void* blob, size_t size, trt_et_find_data find, void* user,
             trt_et_take_engine take) {
  if (blob == nullptr || take == nullptr) {
    return fail(Error::InvalidArgument, "trt_et_build_engine: blob or take is null");
  }
  return build_network_engine(
      blob, size, CallersData(find, user),
      [&](const BuiltFacts& facts, const void* engine, size_t bytes) -> Status {
        if (take(user, text_of(facts).c_str(), engine, bytes) == 0) return {};
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
