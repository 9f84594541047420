#include "engine.h"

#include <algorithm>
#include <cstring>

#include "dtype.h"

namespace trt_et {
namespace {

// Turns a provider's code and text into a Status.
Status check(const trt_et_engine_provider& provider, int code, const char* what) {
  if (code == 0) return {};
  const char* text = provider.last_error();
  const auto error = static_cast<Error>(code);
  if (text != nullptr && *text != '\0') return {error, text};
  return fail(error, "%s engine: %s failed", provider.name, what);
}

}  // namespace

trt_et_binding provider_binding(const Binding& binding) {
  trt_et_binding out{};
  out.name = binding.name.c_str();
  out.is_input = binding.is_input ? 1 : 0;
  const auto dtype = dtype_from_name(binding.dtype);
  out.dtype = dtype ? static_cast<int32_t>(*dtype) : -1;
  // A foreign blob without a dtype has no shape either: its [] is not a 0-d tensor.
  out.rank = dtype ? static_cast<int32_t>(binding.shape.size()) : -1;
  std::copy(binding.shape.begin(), binding.shape.end(), out.dims);
  return out;
}

Status Engine::load(const trt_et_engine_provider& provider, const Blob& blob, int device,
                    std::unique_ptr<Engine>* engine) {
  std::vector<trt_et_binding> bindings;
  for (const Binding& binding : blob.metadata.bindings) {
    bindings.push_back(provider_binding(binding));
  }
  trt_et_engine_request request{};
  std::memcpy(request.magic, blob.magic, sizeof request.magic);
  request.builder = blob.metadata.builder.c_str();
  request.library_version = blob.metadata.library_version.c_str();
  request.device = device;
  request.bytes = blob.engine;
  request.size = blob.engine_size;
  request.bindings = bindings.data();
  request.binding_count = bindings.size();
  TRT_ET_TRY(check(provider, provider.probe(&request), "probe"));
  void* loaded = nullptr;
  TRT_ET_TRY(check(provider, provider.load(&request, &loaded), "load"));
  engine->reset(new Engine(provider, loaded));
  return {};
}

Engine::~Engine() { provider_.free_engine(engine_); }

Status Engine::describe(size_t index, trt_et_binding* out) const {
  return check(provider_, provider_.describe(engine_, index, out), "describe");
}

Status Context::create(const Engine& engine, std::unique_ptr<Context>* context) {
  void* created = nullptr;
  const trt_et_engine_provider& provider = engine.provider_;
  TRT_ET_TRY(check(provider, provider.create_context(engine.engine_, &created), "create_context"));
  context->reset(new Context(provider, created));
  return {};
}

Context::~Context() { provider_.free_context(context_); }

Status Context::bind(size_t index, void* address, const int64_t* dims, int32_t rank) {
  return check(provider_, provider_.bind(context_, index, address, dims, rank), "bind");
}

Status Context::output_shape(size_t index, int64_t* dims, int32_t* rank) {
  return check(provider_, provider_.output_shape(context_, index, dims, rank), "output_shape");
}

Status Context::enqueue(void* stream) {
  return check(provider_, provider_.enqueue(context_, stream), "enqueue");
}

}  // namespace trt_et
