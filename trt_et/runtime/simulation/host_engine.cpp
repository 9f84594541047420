#include "host_engine.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "common/dtype.h"
#include "simulated_api.h"

namespace trt_et {
namespace {

struct HostContext {
  HostEngine* engine = nullptr;
  HostRun run;
  std::vector<HostMemory> memory;  // as the engine's bindings
  // Shapes that the last run wrote. Runs happen when a stream is waited for, on any thread.
  std::mutex mutex;
  bool ran = false;
  std::vector<std::vector<int64_t>> written;
  // Of the last run, and who wants to know it.
  std::chrono::duration<float, std::milli> time{};
  void (*report)(void* user, const char* layer, float ms) = nullptr;
  void* user = nullptr;
};

HostEngine& engine_of(void* engine) { return *static_cast<HostEngine*>(engine); }
HostContext& context_of(void* context) { return *static_cast<HostContext*>(context); }

// As a kernel that touches it would find out.
Status check_memory(const HostEngine& engine, const std::vector<HostMemory>& memory) {
  for (size_t i = 0; i < memory.size(); ++i) {
    const trt_et_binding& binding = engine.bindings[i];
    size_t bytes = memory[i].capacity;
    if (binding.is_input != 0 &&
        !dense_bytes(static_cast<ScalarType>(binding.dtype), memory[i].dims.data(),
                     memory[i].dims.size(), &bytes)) {
      return fail(Error::InvalidArgument, "%s engine: an input has an impossible shape",
                  engine.kind());
    }
    if (bytes == 0) continue;
    TRT_ET_TRY(cuda::simulated_api()->check_memory(memory[i].address, bytes, engine.device(),
                                                   "an engine's argument"));
  }
  return {};
}

Status run(HostContext& context, std::vector<HostMemory> memory) {
  TRT_ET_TRY(check_memory(*context.engine, memory));
  const auto start = std::chrono::steady_clock::now();
  TRT_ET_TRY(context.run(&memory));
  const std::lock_guard<std::mutex> lock(context.mutex);
  context.time = std::chrono::steady_clock::now() - start;
  for (size_t i = 0; i < memory.size(); ++i) context.written[i] = std::move(memory[i].dims);
  context.ran = true;
  return {};
}

Status create_context(HostEngine& engine, void** context) {
  auto created = std::make_unique<HostContext>();
  created->engine = &engine;
  TRT_ET_TRY(engine.create_run(&created->run));
  for (const trt_et_binding& binding : engine.bindings) {
    created->memory.push_back({nullptr, 0, {binding.dims, binding.dims + binding.rank}});
  }
  created->written.resize(created->memory.size());
  *context = created.release();
  return {};
}

Status output_shape(HostContext& context, size_t index, int64_t* dims, int32_t* rank) {
  const std::lock_guard<std::mutex> lock(context.mutex);
  const auto& shape = context.written[index];
  *rank = context.ran ? static_cast<int32_t>(shape.size()) : -1;
  if (context.ran) std::copy(shape.begin(), shape.end(), dims);
  return {};
}

void forget_shapes(HostContext& context) {
  const std::lock_guard<std::mutex> lock(context.mutex);
  context.ran = false;
}

Status enqueue(HostContext& context, void* stream) {
  forget_shapes(context);
  // The bindings are copied: the next call may change them before this run happens.
  TRT_ET_TRY(cuda::simulated_api()->launch(
      stream, [bound = &context, memory = context.memory] { return run(*bound, memory); }));
  if (context.report == nullptr) return {};
  TRT_ET_TRY(cuda::simulated_api()->synchronize_stream(stream));
  const std::lock_guard<std::mutex> lock(context.mutex);
  const std::string layer = std::string(context.engine->kind()) + " engine";
  context.report(context.user, layer.c_str(), context.time.count());
  return {};
}

}  // namespace

trt_et_engine_provider host_provider() {
  trt_et_engine_provider made{};
  made.alignment = 1;
  made.keeps_bytes = [](void* engine) { return engine_of(engine).keeps_bytes() ? 1 : 0; };
  made.describe = [](void* engine, size_t index, trt_et_binding* out) {
    *out = engine_of(engine).bindings[index];
    return 0;
  };
  made.free_engine = [](void* engine) { delete &engine_of(engine); };
  made.create_context = [](void* engine, uint32_t, void** context) {
    return guarded([&] { return create_context(engine_of(engine), context); });
  };
  made.free_context = [](void* context) { delete &context_of(context); };
  made.set_input_shape = [](void* context, size_t index, const int64_t* dims, int32_t rank) {
    return guarded([&]() -> Status {
      context_of(context).memory[index].dims.assign(dims, dims + rank);
      return {};
    });
  };
  // Shapes come out of the run itself.
  made.prepare = [](void* context, void*) { return forget_shapes(context_of(context)), 0; };
  made.output_shape = [](void* context, size_t index, int64_t* dims, int32_t* rank) {
    return guarded([&] { return output_shape(context_of(context), index, dims, rank); });
  };
  made.set_address = [](void* context, size_t index, void* address, size_t capacity) {
    context_of(context).memory[index].address = address;
    context_of(context).memory[index].capacity = capacity;
    return 0;
  };
  made.enqueue = [](void* context, void* stream) {
    return guarded([&] { return enqueue(context_of(context), stream); });
  };
  made.last_error = [] { return last_error().c_str(); };
  // The kernels have no names of their own: the engine counts as one layer.
  made.profile_layers = [](void* context, void (*report)(void*, const char*, float), void* user) {
    context_of(context).report = report;
    context_of(context).user = user;
    return 0;
  };
  return made;
}

}  // namespace trt_et
