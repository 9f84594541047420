// trt_et_build_engine; see include/trt_et/runtime.h.
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "common/log.h"
#include "found_data.h"
#include "network_engine.h"
#include "trt_et/runtime.h"

namespace trt_et {
namespace {

using executorch::runtime::FreeableBuffer;

FoundData::Buffer find_callers(trt_et_find_data find, void* user, std::string_view key) {
  const void* bytes = nullptr;
  size_t size = 0;
  if (find == nullptr || find(user, std::string(key).c_str(), &bytes, &size) != 0) {
    return Error::NotFound;
  }
  return FreeableBuffer(bytes, size, nullptr);
}

// Metadata of the engine's blob, as JSON.
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
      blob, size, FoundData([&](std::string_view key) { return find_callers(find, user, key); }),
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
