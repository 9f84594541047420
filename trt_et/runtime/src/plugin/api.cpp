// The C interface; see include/trt_et/runtime.h.
#include <executorch/runtime/backend/interface.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/log.h"
#include "cuda/device_allocator.h"
#include "cuda/simulation_library.h"
#include "cuda/streams.h"
#include "delegate/delegate.h"
#include "delegate/engine_source.h"
#include "engine/build_progress.h"
#include "engine/compatibility.h"
#include "engine/engine.h"
#include "plugin.h"
#include "trt_et/runtime.h"

// A source build has the version in a header, the wheel in its CMake package.
#if !defined(TRT_ET_EXECUTORCH_VERSION)
#include <executorch/runtime/core/version.h>
#define TRT_ET_EXECUTORCH_VERSION ET_VERSION
#endif

namespace trt_et {
namespace {

// Returns the length of the text.
template <typename F>
size_t write_text(char* out, size_t capacity, F&& make_text) noexcept {
  size_t length = 0;
  (void)enter([&] {
    const std::string text = make_text();
    if (out != nullptr && capacity > 0) std::snprintf(out, capacity, "%s", text.c_str());
    length = text.size();
    return Status{};
  });
  return length;
}

// Returns 0, or -1 after a failure, which is reported.
template <typename F>
int call(F&& function) noexcept {
  clear_last_error();
  return enter(function) == Error::Ok ? 0 : -1;
}

template <typename F>
int with_api(F&& function) noexcept {
  return call([&] {
    cuda::Api* api = nullptr;
    Status status = cuda::access(&api);
    return status.ok() ? function(*api) : status;
  });
}

// With the calling thread's stream of the device, which is current.
template <typename F>
int with_stream(int device, F&& function) noexcept {
  return with_api([&](cuda::Api& api) -> Status {
    cuda::DeviceGuard guard(api);
    WorkStream stream;
    TRT_ET_TRY(enter_stream(api, device, guard, &stream));
    return function(api, stream);
  });
}

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

extern "C" {

const char* trt_et_version(void) {
  return TRT_ET_VERSION " (executorch " TRT_ET_EXECUTORCH_VERSION ")";
}

size_t trt_et_status(char* out, size_t capacity) {
  return write_text(out, capacity, [] {
    const Registration& done = registration();
    const nlohmann::json facts = {
        {"backend", done.backend},
        {"allocator", cuda_allocator_is_registered()},
        {"cuda", cuda::chosen_mode()},
        {"problem", *done.problem != '\0' ? done.problem : cuda::problem()}};
    return facts.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  });
}

int trt_et_register_allocator(void) {
  bool ours = false;
  (void)enter([&] { return ours = register_allocator(), Status{}; });
  return ours ? 1 : 0;
}

int trt_et_available(void) { return has_gpu(cuda::access) ? 1 : 0; }

int trt_et_device_count(void) {
  int count = 0;
  const int failed = call([&] {
    cuda::Api* api = nullptr;
    return cuda::usable_devices(&api, &count);
  });
  return failed != 0 ? -1 : count;
}

int trt_et_planned_device(const void* pointer) { return planned_device(pointer, 1); }

const char* trt_et_last_error(void) { return last_error_text(); }

int trt_et_choose_cuda(const char* mode) {
  return call([&] { return cuda::choose(mode); });
}

int trt_et_set_option(const char* name, const char* text) {
  return call([&] {
    if (name == nullptr) return fail(Error::InvalidArgument, "trt_et_set_option: name is null");
    return set_option(name, text == nullptr ? "" : text);
  });
}

int trt_et_counter(const char* name, uint64_t* value) {
  clear_last_error();  // Nothing here allocates or throws.
  if (name != nullptr && value != nullptr) {
    if (std::string_view(name) == "engines") return *value = live_engines(), 0;
    if (std::string_view(name) == "engine_loads") return *value = engine_loads(), 0;
    const cuda::Simulation* simulation = cuda::simulation();
    if (simulation != nullptr && simulation->counter(name, value)) return 0;
  }
  remember_error("there is no such counter; most are of simulated GPUs");
  return -1;
}

size_t trt_et_describe_engines(char* out, size_t capacity) {
  clear_last_error();
  return write_text(out, capacity, Delegate::describe_all);
}

int trt_et_use_stream(int device, void* stream) {
  return with_api([&](cuda::Api& api) { return use_stream(api, device, stream); });
}

int trt_et_get_stream(int device, void** stream) {
  return with_api([&](cuda::Api& api) {
    if (stream == nullptr) return fail(Error::InvalidArgument, "trt_et_get_stream: stream is null");
    return caller_gets_stream(api, device, stream);
  });
}

int trt_et_save_kernels(void) {
  return call([]() -> Status {
    TRT_ET_TRY(cuda::check_not_forked());
    return save_kernels(), Status{};
  });
}

int trt_et_wait(int device) {
  if (device == -1) return with_api(wait_for_thread);
  return with_stream(device, wait_for_stream);
}

int trt_et_record(int device, void* event) {
  return with_stream(device, [event](cuda::Api& api, const WorkStream& own) {
    if (event == nullptr) return fail(Error::InvalidArgument, "trt_et_record: event is null");
    return api.record_event(event, own.handle);
  });
}

void trt_et_set_log_function(trt_et_log_function function) { set_log_function(function); }

void trt_et_set_build_progress(trt_et_build_progress progress) { set_build_progress(progress); }

int trt_et_build_engine(const void* blob, size_t size, trt_et_find_data find, void* user,
                        trt_et_take_engine take) {
  return call([&] { return build(blob, size, find, user, take); });
}

void trt_et_set_caller_stream_source(trt_et_caller_stream_source source) {
  set_caller_stream_source(source);
}

}  // extern "C"
