// Runs of onnxruntime on the memory of simulated GPUs, in stream order.
#include "onnx_provider.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <string_view>

#include "network.h"
#include "simulated_api.h"

namespace trt_et {
namespace onnx {
namespace {

// Plain: an engine may be freed after the objects of its thread.
thread_local char t_onnx_error[kMaxErrorText + 1] = "";

struct OnnxEngine {
  std::unique_ptr<Network> network;
  std::vector<trt_et_binding> described;
  int device = 0;
};

struct OnnxContext {
  OnnxEngine* engine = nullptr;
  std::vector<Memory> memory;  // as the network's tensors
  // Shapes that the last run wrote. Runs happen when a stream is waited for, on any thread.
  std::mutex mutex;
  bool ran = false;
  std::vector<std::vector<int64_t>> written;
};

// Nothing may throw through the table.
template <typename F>
int guarded(F&& function) noexcept {
  try {
    const Status status = function();
    if (!status.ok()) {
      std::snprintf(t_onnx_error, sizeof t_onnx_error, "%s", status.text.c_str());
    }
    return static_cast<int>(status.error);
  } catch (const std::exception&) {
    std::snprintf(t_onnx_error, sizeof t_onnx_error, "no host memory");
    return static_cast<int>(Error::MemoryAllocationFailed);
  }
}

OnnxContext& context_of(void* context) { return *static_cast<OnnxContext*>(context); }

Status find_memory(OnnxContext& context, size_t index, Memory** memory) {
  if (index >= context.memory.size()) {
    return fail(Error::InvalidArgument, "ONNX engine has no binding %zu", index);
  }
  *memory = &context.memory[index];
  return {};
}

trt_et_binding described(const Tensor& tensor, const trt_et_binding& asked) {
  trt_et_binding out{};
  out.is_input = tensor.is_input ? 1 : 0;
  out.dtype = static_cast<int32_t>(tensor.dtype);
  out.rank = static_cast<int32_t>(tensor.dims.size());
  out.alias_of = -1;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    const bool dynamic = tensor.dims[i] < 0 && asked.dtype >= 0;
    out.dims[i] = dynamic ? asked.dims[i] : tensor.dims[i];
    out.min_dims[i] = dynamic ? asked.min_dims[i] : tensor.dims[i];
    out.max_dims[i] = dynamic ? asked.max_dims[i] : tensor.dims[i];
  }
  return out;
}

int onnx_probe(const trt_et_engine_request* request) {
  return guarded([&]() -> Status {
    if (std::string_view(request->builder) != "onnx") {
      return {Error::NotSupported, "onnxruntime takes payloads of the builder \"onnx\" only"};
    }
    const Library* library = nullptr;
    return open_library(&library);
  });
}

int onnx_load(const trt_et_engine_request* request, void** engine) {
  return guarded([&]() -> Status {
    auto loaded = std::make_unique<OnnxEngine>();
    loaded->device = request->device;
    TRT_ET_TRY(Network::load(*request, &loaded->network));
    for (size_t i = 0; i < request->binding_count; ++i) {
      loaded->described.push_back(described(loaded->network->tensors()[i], request->bindings[i]));
    }
    *engine = loaded.release();
    return {};
  });
}

int onnx_keeps_bytes(void*) { return 0; }

int onnx_describe(void* engine, size_t index, trt_et_binding* out) {
  return guarded([&]() -> Status {
    const auto& known = static_cast<OnnxEngine*>(engine)->described;
    if (index >= known.size()) {
      return fail(Error::InvalidArgument, "ONNX engine has no binding %zu", index);
    }
    *out = known[index];
    return {};
  });
}

void free_onnx_engine(void* engine) { delete static_cast<OnnxEngine*>(engine); }

int create_onnx_context(void* engine, uint32_t, void** context) {
  return guarded([&]() -> Status {
    auto created = std::make_unique<OnnxContext>();
    created->engine = static_cast<OnnxEngine*>(engine);
    created->memory.resize(created->engine->described.size());
    created->written.resize(created->memory.size());
    for (size_t i = 0; i < created->memory.size(); ++i) {
      // Of an input whose shape is static, nobody sets it.
      created->memory[i].dims = created->engine->network->tensors()[i].dims;
    }
    *context = created.release();
    return {};
  });
}

void free_onnx_context(void* context) { delete static_cast<OnnxContext*>(context); }

int onnx_set_input_shape(void* context, size_t index, const int64_t* dims, int32_t rank) {
  return guarded([&]() -> Status {
    Memory* memory = nullptr;
    TRT_ET_TRY(find_memory(context_of(context), index, &memory));
    memory->dims.assign(dims, dims + rank);
    return {};
  });
}

// Shapes come out of the run itself.
int onnx_prepare(void* context, void*) {
  auto& bound = context_of(context);
  const std::lock_guard<std::mutex> lock(bound.mutex);
  bound.ran = false;
  return 0;
}

int onnx_set_address(void* context, size_t index, void* address, size_t capacity) {
  return guarded([&]() -> Status {
    Memory* memory = nullptr;
    TRT_ET_TRY(find_memory(context_of(context), index, &memory));
    memory->address = address;
    memory->capacity = capacity;
    return {};
  });
}

int onnx_output_shape(void* context, size_t index, int64_t* dims, int32_t* rank) {
  return guarded([&]() -> Status {
    auto& bound = context_of(context);
    if (index >= bound.written.size() || bound.engine->described[index].is_input != 0) {
      return fail(Error::InvalidArgument, "ONNX engine has no output %zu", index);
    }
    const std::lock_guard<std::mutex> lock(bound.mutex);
    const auto& shape = bound.written[index];
    *rank = bound.ran ? static_cast<int32_t>(shape.size()) : -1;
    if (bound.ran) std::copy(shape.begin(), shape.end(), dims);
    return {};
  });
}

// As a kernel that touches it would find out.
Status check_memory(const OnnxEngine& engine, const std::vector<Memory>& memory) {
  for (size_t i = 0; i < memory.size(); ++i) {
    const Tensor& tensor = engine.network->tensors()[i];
    size_t bytes = memory[i].capacity;
    if (tensor.is_input &&
        !dense_bytes(tensor.dtype, memory[i].dims.data(), memory[i].dims.size(), &bytes)) {
      return fail(Error::InvalidArgument, "input '%.60s' has an impossible shape",
                  tensor.name.c_str());
    }
    if (bytes == 0) continue;
    TRT_ET_TRY(cuda::simulated_api()->check_memory(memory[i].address, bytes, engine.device,
                                                   "an ONNX engine's argument"));
  }
  return {};
}

int onnx_enqueue(void* context, void* stream) {
  return guarded([&]() -> Status {
    auto* bound = &context_of(context);
    {
      const std::lock_guard<std::mutex> lock(bound->mutex);
      bound->ran = false;
    }
    // The bindings are copied: the next call may change them before this run happens.
    return cuda::simulated_api()->launch(stream, [bound, given = bound->memory]() -> Status {
      std::vector<Memory> memory = given;
      TRT_ET_TRY(check_memory(*bound->engine, memory));
      TRT_ET_TRY(bound->engine->network->run(&memory));
      const std::lock_guard<std::mutex> lock(bound->mutex);
      for (size_t i = 0; i < memory.size(); ++i) bound->written[i] = std::move(memory[i].dims);
      bound->ran = true;
      return {};
    });
  });
}

const char* onnx_last_error() { return t_onnx_error; }

}  // namespace
}  // namespace onnx

const trt_et_engine_provider& onnx_provider() {
  using namespace onnx;
  // It has none of the optional functions.
  static const trt_et_engine_provider table = [] {
    trt_et_engine_provider made{};
    made.abi = TRT_ET_PROVIDER_ABI;
    made.struct_size = sizeof made;
    made.alignment = 1;
    made.name = "ONNX";
    made.probe = onnx_probe;
    made.load = onnx_load;
    made.keeps_bytes = onnx_keeps_bytes;
    made.describe = onnx_describe;
    made.free_engine = free_onnx_engine;
    made.create_context = create_onnx_context;
    made.free_context = free_onnx_context;
    made.set_input_shape = onnx_set_input_shape;
    made.prepare = onnx_prepare;
    made.output_shape = onnx_output_shape;
    made.set_address = onnx_set_address;
    made.enqueue = onnx_enqueue;
    made.last_error = onnx_last_error;
    return made;
  }();
  return table;
}

}  // namespace trt_et
