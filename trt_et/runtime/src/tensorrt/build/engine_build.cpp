#include "engine_build.h"

#include <chrono>
#include <mutex>
#include <thread>

#include "common/immortal.h"
#include "engine_store.h"
#include "network_build.h"

namespace trt_et::tensorrt {
namespace {

constexpr double kMegabyte = 1e6;

void tell(const Status& text) { host().log(TRT_ET_LOG_NOTICE, text.text.c_str()); }

uint64_t weight_bytes(const trt_et_engine_request& request) {
  uint64_t all = request.size;
  for (size_t i = 0; i < request.weight_count; ++i) all += request.weights[i].size;
  return all;
}

// A build next to another one on the same GPU chooses slow kernels, and TensorRT has crashed with
// two in one process. TensorRT-RTX measures nothing.
using Turn = std::unique_lock<std::mutex>;
Status take_turn(const trt_et_engine_request& request, EngineStore* store, Turn* turn) {
  if (kRtx) return {};
  constexpr std::chrono::milliseconds kStep{100};
  const auto ask = request.report_build;  // The build that is waited for asks the caller.
  const auto end = std::chrono::steady_clock::now() + kBuildPatience;
  while (!turn->try_lock() && std::chrono::steady_clock::now() < end) {
    if (ask != nullptr && ask(nullptr, 0, 0) == 0) return wait_was_ended();
    std::this_thread::sleep_for(kStep);
  }
  return store->lock_gpu();
}

}  // namespace

Status check_builder() {
  const Library* library = nullptr;
  const ParserLibrary* parser = nullptr;
  TRT_ET_TRY(open_library(&library));
  return open_parser(*library, &parser);
}

Status build_engine(const trt_et_engine_request& request, BuiltEngine* built) {
  const Library* library = nullptr;
  const ParserLibrary* parser = nullptr;
  TRT_ET_TRY(open_library(&library));
  TRT_ET_TRY(load_plugin_libraries(request, *library));
  Turn turn(immortal<std::mutex>(), std::defer_lock);  // It ends after the store's locks.
  EngineStore store(request, *library);
  if (store.find(built)) return {};
  if (request.build == 0) {
    return fail(Error::NotFound, "build=0, and %.130s for %s on %.40s: load once with build=1",
                store.lack().c_str(), library->name().c_str(), request.gpu);
  }
  TRT_ET_TRY(open_parser(*library, &parser));
  TRT_ET_TRY(store.lock());
  if (store.find(built)) return {};  // Built meanwhile.
  TRT_ET_TRY(take_turn(request, &store, &turn));
  if (const char* problem = request.read_weights(&request)) {
    return fail(Error::InvalidProgram, "%s", problem);
  }
  tell(fail(Error::Ok, "%s builds an engine of a network of %.1f MB for %.60s; this may take %s",
            library->name().c_str(), static_cast<double>(weight_bytes(request)) / kMegabyte,
            request.gpu, kRtx ? "a minute" : "minutes"));
  const auto start = std::chrono::steady_clock::now();
  std::unique_ptr<nvinfer::IHostMemory> plan;
  TRT_ET_TRY(build_network(request, *library, *parser, store.temporary_prefix(), &plan));
  *built = {nullptr, plan->data(), plan->size(), ""};
  built->owner = std::shared_ptr<const nvinfer::IHostMemory>(std::move(plan));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const bool kept = store.keep(built->bytes, built->size);
  tell(fail(Error::Ok, "built an engine of %.1f MB in %.1f s%s%.90s",
            static_cast<double>(built->size) / kMegabyte, took.count(), kept ? ", kept in " : "",
            kept ? store.folder().c_str() : ""));
  return {};
}

}  // namespace trt_et::tensorrt
