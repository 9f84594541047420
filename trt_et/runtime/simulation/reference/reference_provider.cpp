#include "reference_provider.h"

#include <string_view>
#include <utility>

#include "nested_program.h"

namespace trt_et {
namespace reference {
namespace {

// Of each binding: whether it is an input, and its position among the inputs or outputs.
using Positions = std::vector<std::pair<bool, size_t>>;

// With memory of its own for the kernels.
struct Run final : HostRun {
  explicit Run(const Positions& of_bindings) : positions(of_bindings) {}

  Status run(std::vector<HostMemory>* memory) override {
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto& [is_input, position] = positions[i];
      if (is_input) TRT_ET_TRY(method->set_input(position, (*memory)[i]));
    }
    TRT_ET_TRY(method->execute());
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto& [is_input, position] = positions[i];
      if (!is_input) TRT_ET_TRY(method->take_output(position, &(*memory)[i]));
    }
    return {};
  }

  const Positions& positions;
  std::unique_ptr<NestedMethod> method;
};

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

trt_et_binding described(const Slot& slot, bool is_input) {
  trt_et_binding out{};
  out.is_input = is_input ? 1 : 0;
  out.dtype = static_cast<int32_t>(slot.dtype);
  out.rank = static_cast<int32_t>(slot.sizes.size());
  out.alias_of = -1;
  for (size_t i = 0; i < slot.sizes.size(); ++i) {
    out.dims[i] = out.min_dims[i] = out.max_dims[i] = slot.sizes[slot.dim_order[i]];
  }
  return out;
}

class Engine final : public HostEngine {
 public:
  using HostEngine::HostEngine;
  Status load(const trt_et_engine_request& request) {
    TRT_ET_TRY(NestedProgram::load(request.bytes, request.size, &program_));
    size_t inputs = 0, outputs = 0;
    for (size_t i = 0; i < request.binding_count; ++i) {
      const bool is_input = request.bindings[i].is_input != 0;
      positions_.emplace_back(is_input, is_input ? inputs++ : outputs++);
    }
    if (inputs != program_->inputs().size() || outputs != program_->outputs().size()) {
      return fail(Error::InvalidProgram,
                  "reference engine: blob has %zu inputs and %zu outputs, its program %zu and %zu",
                  inputs, outputs, program_->inputs().size(), program_->outputs().size());
    }
    for (size_t i = 0; i < request.binding_count; ++i) {
      const auto& [is_input, position] = positions_[i];
      const Slot& slot = is_input ? program_->inputs()[position] : program_->outputs()[position];
      TRT_ET_TRY(check_binding(request.bindings[i], slot));
      bindings.push_back(described(slot, is_input));
    }
    return {};
  }
  Status create_run(std::unique_ptr<HostRun>* run) override {
    auto created = std::make_unique<Run>(positions_);
    TRT_ET_TRY(NestedMethod::load(*program_, &created->method));
    *run = std::move(created);
    return {};
  }
  bool keeps_bytes() const override { return !program_->copied(); }

 private:
  std::unique_ptr<NestedProgram> program_;
  Positions positions_;
};

int probe(const trt_et_engine_request* request) {
  return host_call([&]() -> Status {
    if (std::string_view(request->magic, 4) == "TRRF") return {};
    return {Error::NotSupported, "the reference provider takes reference engines (TRRF) only"};
  });
}

int load(const trt_et_engine_request* request, void** engine) {
  return host_call([&]() -> Status {
    auto loaded = std::make_unique<Engine>("reference", request->device);
    TRT_ET_TRY(loaded->load(*request));
    *engine = static_cast<HostEngine*>(loaded.release());
    return {};
  });
}

}  // namespace
}  // namespace reference

const trt_et_engine_provider& reference_provider() {
  static const trt_et_engine_provider table = [] {
    trt_et_engine_provider made = host_provider();
    made.name = "reference";
    made.probe = reference::probe;
    made.load = reference::load;
    return made;
  }();
  return table;
}

}  // namespace trt_et
