// The provider's table, and its one exported symbol.
#include <cstring>

#include "run_context.h"

namespace trt_et::tensorrt {
namespace {

constexpr uint32_t kAddressAlignment = 256;  // IExecutionContext::setTensorAddress asks for it.

int probe(const trt_et_engine_request* request) {
  return guarded([&]() -> ProviderStatus {
    const bool foreign = *request->builder == '\0';
    if (!foreign && kRtx != (std::strcmp(request->builder, "tensorrt_rtx") == 0)) {
      return fail(Error::NotFound, "engine is of %.60s", request->builder);
    }
    Version built;
    if (Version::parse(request->library_version, &built) && built.major != kMajor) {
      return fail(Error::NotFound, "engine is of version %s, not of %d", built.text().c_str(),
                  kMajor);
    }
    const Library* library = nullptr;
    return open_library(&library);
  });
}

int load(const trt_et_engine_request* request, void** engine) {
  return guarded([&]() -> ProviderStatus {
    std::unique_ptr<LoadedEngine> loaded;
    TRT_ET_PROVIDER_TRY(LoadedEngine::load(*request, &loaded));
    *engine = loaded.release();
    return {};
  });
}

LoadedEngine& engine_at(void* engine) { return *static_cast<LoadedEngine*>(engine); }
RunContext& context_at(void* context) { return *static_cast<RunContext*>(context); }

// TensorRT has copied what it needs, to the GPU and to memory of its own.
int keeps_bytes(void*) { return 0; }

int describe(void* engine, size_t index, trt_et_binding* out) {
  return guarded([&] { return engine_at(engine).describe(index, out); });
}

void free_engine(void* engine) { delete &engine_at(engine); }

int create_context(void* engine, uint32_t flags, void** context) {
  return guarded([&]() -> ProviderStatus {
    std::unique_ptr<RunContext> created;
    TRT_ET_PROVIDER_TRY(RunContext::create(engine_at(engine), flags, &created));
    *context = created.release();
    return {};
  });
}

void free_context(void* context) { delete &context_at(context); }

int set_input_shape(void* context, size_t index, const int64_t* dims, int32_t rank) {
  return guarded([&] { return context_at(context).set_input_shape(index, dims, rank); });
}

int prepare(void* context, void* stream) {
  return guarded([&] { return context_at(context).prepare(stream); });
}

int output_shape(void* context, size_t index, int64_t* dims, int32_t* rank) {
  return guarded([&] { return context_at(context).output_shape(index, dims, rank); });
}

int set_address(void* context, size_t index, void* address, size_t capacity) {
  return guarded([&] { return context_at(context).set_address(index, address, capacity); });
}

int enqueue(void* context, void* stream) {
  return guarded([&] { return context_at(context).enqueue(stream); });
}

const char* last_error_text() { return last_error().c_str(); }

int memory_size(void* engine, size_t* bytes) {
  return guarded([&]() -> ProviderStatus {
    const int64_t needed = engine_at(engine).memory_bytes();
    if (needed < 0) {
      return fail(Error::NotSupported, "shared scratch memory needs TensorRT 10.1 or later");
    }
    *bytes = static_cast<size_t>(needed);
    return {};
  });
}

int set_memory(void* context, void* memory, size_t bytes) {
  return guarded([&] { return context_at(context).set_memory(memory, bytes); });
}

int profile_layers(void* context, void (*report)(void*, const char*, float), void* user) {
  return guarded([&] { return context_at(context).profile_layers(report, user); });
}

int check_capture(void* context, void* stream) {
  return guarded([&] { return context_at(context).check_capture(stream); });
}

int save_all_kernels() {
  save_kernels();
  return 0;
}

int set_profile(void* context, int32_t profile) {
  return guarded([&] { return context_at(context).set_profile(profile); });
}

int profile(void* context, int32_t* profile) {
  *profile = context_at(context).profile();
  return 0;
}

constexpr trt_et_engine_provider kProvider = {TRT_ET_PROVIDER_ABI,
                                              sizeof(trt_et_engine_provider),
                                              TRT_ET_PROVIDER_GRAPHS,
                                              kAddressAlignment,
                                              kRtx ? "TensorRT-RTX" : "TensorRT",
                                              probe,
                                              load,
                                              keeps_bytes,
                                              describe,
                                              free_engine,
                                              create_context,
                                              free_context,
                                              set_input_shape,
                                              prepare,
                                              output_shape,
                                              set_address,
                                              enqueue,
                                              last_error_text,
                                              memory_size,
                                              set_memory,
                                              profile_layers,
                                              check_capture,
                                              save_all_kernels,
                                              set_profile,
                                              profile};

}  // namespace
}  // namespace trt_et::tensorrt

extern "C" __attribute__((visibility("default"))) const trt_et_engine_provider*
trt_et_open_provider(const trt_et_host* host) {
  if (host == nullptr || host->abi != TRT_ET_PROVIDER_ABI) return nullptr;
  trt_et::tensorrt::set_host(host);
  return &trt_et::tensorrt::kProvider;
}
