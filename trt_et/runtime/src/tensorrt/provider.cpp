// The provider's table, and its one exported symbol.
#include <cstring>

#include "build/engine_build.h"
#include "run_context.h"

namespace trt_et::tensorrt {
namespace {

constexpr uint32_t kAddressAlignment = 256;  // IExecutionContext::setTensorAddress asks for it.

int probe(const trt_et_engine_request* request) {
  return guarded([&]() -> Status {
    const bool foreign = *request->builder == '\0';
    if (std::strcmp(request->builder, "onnx") == 0) return check_builder();
    if (!foreign && kRtx != (std::strcmp(request->builder, "tensorrt_rtx") == 0)) {
      return fail(Error::NotFound, "engine is of %.60s", request->builder);
    }
    Version built;
    if (Version::parse(request->library_version, &built) && built.major != kMajor &&
        built.major != kOlderMajor) {
      return fail(Error::NotFound, "engine is of version %s, not of %d", built.text().c_str(),
                  kMajor);
    }
    const Library* library = nullptr;
    return open_library(&library);
  });
}

// TensorRT-RTX has no targets of 9.0, 10.x and 11.0, and refuses no such GPU. On an H200 its
// engines lost biases of linear layers (docs/gpu.md).
Status check_gpu(const trt_et_engine_request& request) {
  const bool supported = !kRtx || request.gpu_major < 9 || request.gpu_major > 11;
  const char* anyway = host().variable("TRT_ET_ANY_GPU");
  if (supported || (anyway != nullptr && std::strcmp(anyway, "1") == 0)) return {};
  return fail(Error::DelegateInvalidCompatibility,
              "TensorRT-RTX does not support compute capability %d.%d (%.60s), where its results "
              "may be wrong: use TensorRT there, with builder='onnx' or 'tensorrt'",
              request.gpu_major, request.gpu_minor, request.gpu);
}

int load(const trt_et_engine_request* request, void** engine) {
  return guarded([&]() -> Status {
    TRT_ET_TRY(check_gpu(*request));
    std::unique_ptr<LoadedEngine> loaded;
    TRT_ET_TRY(LoadedEngine::load(*request, &loaded));
    *engine = loaded.release();
    return {};
  });
}

int build(const trt_et_engine_request* request, const void** bytes, size_t* size, void** owner) {
  return guarded([&]() -> Status {
    TRT_ET_TRY(check_gpu(*request));
    auto built = std::make_unique<BuiltEngine>();
    TRT_ET_TRY(build_engine(*request, built.get()));
    *bytes = built->bytes;
    *size = built->size;
    *owner = built.release();
    return {};
  });
}

void free_built(void* owner) { delete static_cast<BuiltEngine*>(owner); }

const char* kept_in(void* owner) { return static_cast<BuiltEngine*>(owner)->file.c_str(); }

LoadedEngine& engine_at(void* engine) { return *static_cast<LoadedEngine*>(engine); }
RunContext& context_at(void* context) { return *static_cast<RunContext*>(context); }

// TensorRT has copied what it needs, to the GPU and to memory of its own.
int keeps_bytes(void*) { return 0; }

int describe(void* engine, size_t index, trt_et_binding* out) {
  return guarded([&] { return engine_at(engine).describe(index, out); });
}

void free_engine(void* engine) { delete &engine_at(engine); }

int create_context(void* engine, uint32_t flags, void** context) {
  return guarded([&]() -> Status {
    std::unique_ptr<RunContext> created;
    TRT_ET_TRY(RunContext::create(engine_at(engine), flags, &created));
    *context = created.release();
    return {};
  });
}

void free_context(void* context) { delete &context_at(context); }

// A method of RunContext, as the table has it.
template <auto method, typename... Arguments>
int in_context(void* context, Arguments... arguments) {
  return guarded([&] { return (context_at(context).*method)(arguments...); });
}

const char* last_error_text() { return last_error().c_str(); }

int memory_size(void* engine, size_t* bytes) {
  return guarded([&]() -> Status {
    const int64_t needed = engine_at(engine).memory_bytes();
    if (needed < 0) {
      return fail(Error::NotSupported, "shared scratch memory needs TensorRT 10.1 or later");
    }
    *bytes = static_cast<size_t>(needed);
    return {};
  });
}

int save_all_kernels() {
  save_kernels();
  return 0;
}

int profile(void* context, int32_t* profile) {
  *profile = context_at(context).profile();
  return 0;
}

// TensorRT-RTX makes no other context of an engine whose runs can be captured, which trt-et asks of
// static ones (trt_et/engines/tensorrt_rtx.py).
constexpr uint32_t kFlags = TRT_ET_PROVIDER_GRAPHS | (kRtx ? TRT_ET_PROVIDER_USER_MEMORY : 0);

constexpr trt_et_engine_provider kProvider = {kFlags,
                                              kAddressAlignment,
                                              kName,
                                              probe,
                                              load,
                                              keeps_bytes,
                                              describe,
                                              free_engine,
                                              create_context,
                                              free_context,
                                              in_context<&RunContext::set_input_shape>,
                                              in_context<&RunContext::prepare>,
                                              in_context<&RunContext::output_shape>,
                                              in_context<&RunContext::set_address>,
                                              in_context<&RunContext::enqueue>,
                                              last_error_text,
                                              memory_size,
                                              in_context<&RunContext::set_memory>,
                                              in_context<&RunContext::profile_layers>,
                                              in_context<&RunContext::check_capture>,
                                              save_all_kernels,
                                              in_context<&RunContext::set_profile>,
                                              profile,
                                              build,
                                              free_built,
                                              kept_in};

}  // namespace
}  // namespace trt_et::tensorrt

extern "C" __attribute__((visibility("default"))) const trt_et_engine_provider*
trt_et_open_provider(const trt_et_host* host) {
  if (host == nullptr || host->abi != TRT_ET_PROVIDER_ABI) return nullptr;
  if (std::strcmp(host->version, TRT_ET_VERSION) != 0) return nullptr;
  trt_et::g_host = host;
  return &trt_et::tensorrt::kProvider;
}
