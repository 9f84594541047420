// Engines that are nested ExecuTorch programs, run by the CPU kernels on the memory of simulated
// GPUs, in stream order.
#include "reference_provider.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>

#include "nested_program.h"
#include "simulated_api.h"

namespace trt_et {
namespace {

using reference::Memory;
using reference::NestedMethod;
using reference::NestedProgram;
using reference::Slot;

// Plain: an engine may be freed after the objects of its thread.
thread_local char t_error[kMaxErrorText + 1] = "";

struct ReferenceEngine {
  std::unique_ptr<NestedProgram> program;
  // Binding index -> (is input, position among the inputs or outputs).
  std::vector<std::pair<bool, size_t>> slots;
};

struct ReferenceContext {
  ReferenceEngine* engine = nullptr;
  std::unique_ptr<NestedMethod> method;
  std::vector<Memory> inputs;
  std::vector<Memory> outputs;
  // Shapes that the last run wrote. Runs happen when a stream is waited for, on any thread.
  std::mutex mutex;
  bool ran = false;
  std::vector<std::vector<int64_t>> written;
  // Of the last run, and who wants to know it.
  float milliseconds = 0;
  void (*report)(void* user, const char* layer, float ms) = nullptr;
  void* user = nullptr;
};

// Nothing may throw through the table.
template <typename F>
int run(F&& function) noexcept {
  try {
    Status status = function();
    if (!status.ok()) std::snprintf(t_error, sizeof t_error, "%s", status.text.c_str());
    return static_cast<int>(status.error);
  } catch (const std::exception&) {
    return static_cast<int>(Error::MemoryAllocationFailed);
  }
}

const Slot& slot_of(const ReferenceEngine& engine, size_t index) {
  const auto& [is_input, slot] = engine.slots[index];
  return is_input ? engine.program->inputs()[slot] : engine.program->outputs()[slot];
}

Status check_index(const ReferenceEngine& engine, size_t index) {
  if (index < engine.slots.size()) return {};
  return fail(Error::InvalidArgument, "reference engine has no binding %zu", index);
}

Status check_counts(const trt_et_engine_request& request, const ReferenceEngine& engine) {
  size_t inputs = 0;
  for (const auto& slot : engine.slots) inputs += slot.first ? 1 : 0;
  const size_t outputs = request.binding_count - inputs;
  if (inputs == engine.program->inputs().size() && outputs == engine.program->outputs().size()) {
    return {};
  }
  return fail(Error::InvalidProgram,
              "reference engine: blob has %zu inputs and %zu outputs, its program %zu and %zu",
              inputs, outputs, engine.program->inputs().size(), engine.program->outputs().size());
}

// The blob and the nested program must agree: a wrong blob would let the kernels overrun memory.
Status check_binding(const trt_et_binding& binding, const Slot& slot) {
  if (slot.sizes.size() > TRT_ET_MAX_RANK) {
    return fail(Error::InvalidProgram, "reference engine: '%.60s' has rank %zu", binding.name,
                slot.sizes.size());
  }
  if (binding.dtype < 0) return {};
  if (static_cast<ScalarType>(binding.dtype) != slot.dtype ||
      static_cast<size_t>(binding.rank) != slot.sizes.size()) {
    return fail(Error::InvalidProgram,
                "reference engine: blob says '%.60s' is %s of rank %d, its program %s of rank %zu",
                binding.name, dtype_name(static_cast<ScalarType>(binding.dtype)), binding.rank,
                dtype_name(slot.dtype), slot.sizes.size());
  }
  for (size_t i = 0; i < slot.sizes.size(); ++i) {
    const int64_t size = slot.sizes[slot.dim_order[i]];
    if (binding.dims[i] >= 0 && binding.dims[i] != size) {
      return fail(Error::InvalidProgram,
                  "reference engine: blob says '%.60s' has %lld in dimension %zu, its program %lld",
                  binding.name, static_cast<long long>(binding.dims[i]), i,
                  static_cast<long long>(size));
    }
  }
  return {};
}

int probe(const trt_et_engine_request* request) {
  return run([&]() -> Status {
    if (std::string_view(request->magic, 4) == "TRRF") return {};
    return {Error::NotSupported, "the reference provider takes reference engines (TRRF) only"};
  });
}

int load(const trt_et_engine_request* request, void** engine) {
  return run([&]() -> Status {
    auto loaded = std::make_unique<ReferenceEngine>();
    TRT_ET_TRY(NestedProgram::load(request->bytes, request->size, &loaded->program));
    size_t inputs = 0, outputs = 0;
    for (size_t i = 0; i < request->binding_count; ++i) {
      const bool is_input = request->bindings[i].is_input != 0;
      loaded->slots.emplace_back(is_input, is_input ? inputs++ : outputs++);
    }
    TRT_ET_TRY(check_counts(*request, *loaded));
    for (size_t i = 0; i < request->binding_count; ++i) {
      TRT_ET_TRY(check_binding(request->bindings[i], slot_of(*loaded, i)));
    }
    *engine = loaded.release();
    return {};
  });
}

int keeps_bytes(void* engine) {
  return static_cast<ReferenceEngine*>(engine)->program->copied() ? 0 : 1;
}

int describe(void* engine, size_t index, trt_et_binding* out) {
  return run([&]() -> Status {
    const auto& loaded = *static_cast<ReferenceEngine*>(engine);
    TRT_ET_TRY(check_index(loaded, index));
    const Slot& slot = slot_of(loaded, index);
    *out = trt_et_binding{};
    out->is_input = loaded.slots[index].first ? 1 : 0;
    out->dtype = static_cast<int32_t>(slot.dtype);
    out->rank = static_cast<int32_t>(slot.sizes.size());
    out->alias_of = -1;
    for (size_t i = 0; i < slot.sizes.size(); ++i) {
      out->dims[i] = out->min_dims[i] = out->max_dims[i] = slot.sizes[slot.dim_order[i]];
    }
    return {};
  });
}

void free_engine(void* engine) { delete static_cast<ReferenceEngine*>(engine); }

int create_context(void* engine, uint32_t, void** context) {
  return run([&]() -> Status {
    auto created = std::make_unique<ReferenceContext>();
    created->engine = static_cast<ReferenceEngine*>(engine);
    TRT_ET_TRY(NestedMethod::load(*created->engine->program, &created->method));
    created->inputs.resize(created->engine->program->inputs().size());
    created->outputs.resize(created->engine->program->outputs().size());
    created->written.resize(created->outputs.size());
    *context = created.release();
    return {};
  });
}

void free_context(void* context) { delete static_cast<ReferenceContext*>(context); }

Status find_memory(ReferenceContext& context, size_t index, Memory** memory) {
  TRT_ET_TRY(check_index(*context.engine, index));
  const auto& [is_input, slot] = context.engine->slots[index];
  *memory = is_input ? &context.inputs[slot] : &context.outputs[slot];
  return {};
}

int set_input_shape(void* context, size_t index, const int64_t* dims, int32_t rank) {
  return run([&]() -> Status {
    Memory* memory = nullptr;
    TRT_ET_TRY(find_memory(*static_cast<ReferenceContext*>(context), index, &memory));
    memory->dims.assign(dims, dims + rank);
    return {};
  });
}

// Shapes come out of the run itself.
int prepare(void* context, void*) {
  auto& bound = *static_cast<ReferenceContext*>(context);
  const std::lock_guard<std::mutex> lock(bound.mutex);
  bound.ran = false;
  return 0;
}

int set_address(void* context, size_t index, void* address, size_t capacity) {
  return run([&]() -> Status {
    Memory* memory = nullptr;
    TRT_ET_TRY(find_memory(*static_cast<ReferenceContext*>(context), index, &memory));
    memory->address = address;
    memory->capacity = capacity;
    return {};
  });
}

int output_shape(void* context, size_t index, int64_t* dims, int32_t* rank) {
  return run([&]() -> Status {
    auto& bound = *static_cast<ReferenceContext*>(context);
    TRT_ET_TRY(check_index(*bound.engine, index));
    if (bound.engine->slots[index].first) {
      return fail(Error::InvalidArgument, "reference engine: binding %zu is an input", index);
    }
    const std::lock_guard<std::mutex> lock(bound.mutex);
    const auto& shape = bound.written[bound.engine->slots[index].second];
    *rank = bound.ran ? static_cast<int32_t>(shape.size()) : -1;
    if (bound.ran) std::copy(shape.begin(), shape.end(), dims);
    return {};
  });
}

int enqueue(void* context, void* stream) {
  return run([&]() -> Status {
    auto* bound = static_cast<ReferenceContext*>(context);
    {
      const std::lock_guard<std::mutex> lock(bound->mutex);
      bound->ran = false;
    }
    // The bindings are copied: the next call may change them before this run happens.
    TRT_ET_TRY(cuda::simulated_api()->launch(
        stream, [bound, inputs = bound->inputs, memory = bound->outputs]() -> Status {
          std::vector<Memory> outputs = memory;
          const auto start = std::chrono::steady_clock::now();
          TRT_ET_TRY(bound->method->run(inputs, &outputs));
          const std::chrono::duration<float, std::milli> time =
              std::chrono::steady_clock::now() - start;
          const std::lock_guard<std::mutex> lock(bound->mutex);
          bound->milliseconds = time.count();
          for (size_t i = 0; i < outputs.size(); ++i)
            bound->written[i] = std::move(outputs[i].dims);
          bound->ran = true;
          return {};
        }));
    if (bound->report == nullptr) return {};
    TRT_ET_TRY(cuda::simulated_api()->synchronize_stream(stream));
    const std::lock_guard<std::mutex> lock(bound->mutex);
    bound->report(bound->user, "reference engine", bound->milliseconds);
    return {};
  });
}

// The kernels have no names of their own: the engine counts as one layer.
int profile_layers(void* context, void (*report)(void*, const char*, float), void* user) {
  auto& bound = *static_cast<ReferenceContext*>(context);
  bound.report = report;
  bound.user = user;
  return 0;
}

const char* last_error() { return t_error; }

}  // namespace

const trt_et_engine_provider& reference_provider() {
  static const trt_et_engine_provider table = [] {
    trt_et_engine_provider made{};
    made.abi = TRT_ET_PROVIDER_ABI;
    made.struct_size = sizeof made;
    made.alignment = 1;
    made.name = "reference";
    made.probe = probe;
    made.load = load;
    made.keeps_bytes = keeps_bytes;
    made.describe = describe;
    made.free_engine = free_engine;
    made.create_context = create_context;
    made.free_context = free_context;
    made.set_input_shape = set_input_shape;
    made.prepare = prepare;
    made.output_shape = output_shape;
    made.set_address = set_address;
    made.enqueue = enqueue;
    made.last_error = last_error;
    made.profile_layers = profile_layers;
    return made;
  }();
  return table;
}

}  // namespace trt_et
