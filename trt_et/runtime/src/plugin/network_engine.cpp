#include "network_engine.h"

#include <executorch/runtime/backend/interface.h>

#include <string>

#include "delegate/engine_source.h"
#include "engine/compatibility.h"
#include "engine/provider_library.h"

namespace trt_et {
namespace {

BuiltFacts built_facts(const EngineSource& source, const void* engine, size_t size) {
  BuiltFacts facts;
  facts.rtx = std::string(source.provider().name) == "TensorRT-RTX";
  facts.library_version = plan_version(engine, size);
  facts.gpu_name = source.gpu().name;
  facts.compute_capability =
      std::to_string(source.gpu().major) + "." + std::to_string(source.gpu().minor);
  facts.target_platform = platform_name();
  return facts;
}

}  // namespace

Status build_network_engine(const void* blob, size_t size,
                            const executorch::runtime::NamedDataMap& named_data,
                            const TakeBuiltEngine& take) {
  LoadOptions options;
  const executorch::runtime::BackendInitContext context(nullptr);
  TRT_ET_TRY(read_options(context, {}, &options));
  EngineSource source;
  TRT_ET_TRY(source.open(blob, size, &named_data, options));
  cuda::DeviceGuard guard(source.api());
  TRT_ET_TRY(guard.enter(source.device()));
  TRT_ET_TRY(source.fit());
  return source.build([&](const void* engine, size_t bytes) {
    return take(built_facts(source, engine, bytes), engine, bytes);
  });
}

}  // namespace trt_et
