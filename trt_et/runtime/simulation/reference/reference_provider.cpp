// Engines that are nested ExecuTorch programs, run on host memory.
#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/core/exec_aten/util/dim_order_util.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/dtype.h"
#include "host_engine.h"

namespace trt_et {
namespace reference {
namespace {

using executorch::runtime::EValue;
using executorch::runtime::HierarchicalAllocator;
using executorch::runtime::MemoryManager;
using executorch::runtime::Method;
using executorch::runtime::MethodMeta;
using executorch::runtime::Program;
using executorch::runtime::Result;
using executorch::runtime::Span;
using executorch::runtime::Tag;
using executorch::runtime::TensorInfo;
using executorch::runtime::etensor::Tensor;
using executorch::runtime::etensor::TensorImpl;

constexpr const char* kMethod = "forward";
constexpr size_t kProgramAlignment = 16;  // alignof(max_align_t): Program::load insists on it.

// An input or output of "forward": its shape is the upper bound.
struct Slot {
  ScalarType dtype = ScalarType::Float;
  std::vector<int32_t> sizes;
  std::vector<uint8_t> dim_order;
};

// Of each binding: whether it is an input, and its position among the inputs or outputs.
using Positions = std::vector<std::pair<bool, size_t>>;

Status failed(Error error, const char* what) {
  return fail(error, "reference engine: %s failed: %s", what,
              executorch::runtime::to_string(error));
}

Status read_slot(const Result<Tag>& tag, const Result<TensorInfo>& info, const char* what,
                 size_t index, Slot* slot) {
  if (!tag.ok() || *tag != Tag::Tensor || !info.ok()) {
    return fail(Error::InvalidProgram, "reference engine: %s %zu is not a tensor", what, index);
  }
  slot->dtype = info->scalar_type();
  slot->sizes.assign(info->sizes().begin(), info->sizes().end());
  slot->dim_order.assign(info->dim_order().begin(), info->dim_order().end());
  return {};
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

// "forward", with memory of its own for the kernels.
class Run {
 public:
  Run(const Positions& positions, const std::vector<Slot>& inputs)
      : positions_(positions), inputs_(inputs) {}

  Status load(Program& program);
  Status run(std::vector<HostMemory>* memory);

 private:
  Status plan_memory(const MethodMeta& meta);
  // The input's memory must stay until the method has run.
  Status set_input(size_t index, const HostMemory& memory);
  // Writes the output; its `dims` become the shape that was written.
  Status take_output(size_t index, HostMemory* memory);

  const Positions& positions_;
  const std::vector<Slot>& inputs_;
  executorch::extension::MallocMemoryAllocator method_allocator_;
  executorch::extension::MallocMemoryAllocator temp_allocator_;
  std::vector<std::unique_ptr<uint8_t[]>> buffers_;
  std::vector<Span<uint8_t>> spans_;
  std::vector<std::unique_ptr<uint8_t[]>> output_buffers_;
  std::optional<HierarchicalAllocator> planned_;
  std::optional<MemoryManager> manager_;
  std::optional<Method> method_;
};

Status Run::load(Program& program) {
  auto meta = program.method_meta(kMethod);
  if (!meta.ok()) return failed(meta.error(), "finding its method forward");
  TRT_ET_TRY(plan_memory(*meta));
  manager_.emplace(&method_allocator_, &*planned_, &temp_allocator_);
  auto loaded = program.load_method(kMethod, &*manager_);
  if (!loaded.ok()) return failed(loaded.error(), "loading its method forward");
  method_.emplace(std::move(*loaded));
  // Outputs that were left out of the memory plan get memory here.
  for (size_t i = 0; i < method_->outputs_size(); ++i) {
    auto info = meta->output_tensor_meta(i);
    const auto& value = method_->get_output(i);
    if (!info.ok() || info->is_memory_planned() || !value.isTensor()) continue;
    if (value.toTensor().const_data_ptr() != nullptr) continue;
    output_buffers_.emplace_back(new uint8_t[info->nbytes() + 1]);
    const Error error =
        method_->set_output_data_ptr(output_buffers_.back().get(), info->nbytes(), i);
    if (error != Error::Ok) return failed(error, "setting an output");
  }
  return {};
}

Status Run::plan_memory(const MethodMeta& meta) {
  for (size_t i = 0; i < meta.num_memory_planned_buffers(); ++i) {
    const auto size = meta.memory_planned_buffer_size(i);
    const auto device = meta.memory_planned_buffer_device(i);
    if (!size.ok() || *size < 0 || !device.ok() || !device->is_cpu()) {
      return fail(Error::InvalidProgram, "reference engine: its buffer %zu is not on the CPU", i);
    }
    buffers_.emplace_back(new uint8_t[static_cast<size_t>(*size) + 1]);
    spans_.emplace_back(buffers_.back().get(), static_cast<size_t>(*size));
  }
  planned_.emplace(Span<Span<uint8_t>>(spans_.data(), spans_.size()));
  return {};
}

Status Run::set_input(size_t index, const HostMemory& memory) {
  const Slot& slot = inputs_[index];
  const size_t rank = slot.sizes.size();
  int32_t sizes[TRT_ET_MAX_RANK] = {}, strides[TRT_ET_MAX_RANK] = {};
  std::vector<uint8_t> order = slot.dim_order;
  for (size_t i = 0; i < rank; ++i) sizes[order[i]] = static_cast<int32_t>(memory.dims[i]);
  executorch::runtime::dim_order_to_stride_nocheck(sizes, order.data(), rank, strides);
  TensorImpl impl(slot.dtype, static_cast<ssize_t>(rank), sizes, memory.address, order.data(),
                  strides);
  const Error error = method_->set_input(EValue(Tensor(&impl)), index);
  return error == Error::Ok ? Status{} : failed(error, "setting an input");
}

Status Run::take_output(size_t index, HostMemory* memory) {
  const auto& value = method_->get_output(index);
  if (!value.isTensor()) {
    return fail(Error::InvalidProgram, "reference engine: output %zu is not a tensor", index);
  }
  const Tensor& tensor = value.toTensor();
  if (tensor.nbytes() > memory->capacity) {
    return fail(Error::InvalidArgument,
                "reference engine: output %zu has %zu bytes, there is room for %zu", index,
                tensor.nbytes(), memory->capacity);
  }
  if (tensor.nbytes() > 0) std::memcpy(memory->address, tensor.const_data_ptr(), tensor.nbytes());
  memory->dims.clear();
  for (const uint8_t dim : tensor.dim_order()) memory->dims.push_back(tensor.size(dim));
  return {};
}

Status Run::run(std::vector<HostMemory>* memory) {
  for (size_t i = 0; i < positions_.size(); ++i) {
    const auto& [is_input, position] = positions_[i];
    if (is_input) TRT_ET_TRY(set_input(position, (*memory)[i]));
  }
  const Error error = method_->execute();
  if (error != Error::Ok) return failed(error, "its nested program");
  for (size_t i = 0; i < positions_.size(); ++i) {
    const auto& [is_input, position] = positions_[i];
    if (!is_input) TRT_ET_TRY(take_output(position, &(*memory)[i]));
  }
  return {};
}

// The program is shared by the contexts, which only read it.
class Engine final : public HostEngine {
 public:
  static constexpr const char* kKind = "reference";
  using HostEngine::HostEngine;

  // It is asked for reference engines only.
  static Status probe(const trt_et_engine_request&) { return {}; }
  Status load(const trt_et_engine_request& request);
  Status create_run(HostRun* run) override {
    const auto created = std::make_shared<Run>(positions_, inputs_);
    TRT_ET_TRY(created->load(*program_));
    *run = [created](std::vector<HostMemory>* memory) { return created->run(memory); };
    return {};
  }
  // Unless they are misaligned, and were copied.
  bool keeps_bytes() const override { return copy_ == nullptr; }

 private:
  Status load_program(const void* bytes, size_t size);
  Status read_slots();

  std::unique_ptr<void, decltype(&std::free)> copy_{nullptr, &std::free};
  std::optional<executorch::extension::BufferDataLoader> loader_;
  std::optional<Program> program_;
  std::vector<Slot> inputs_;
  std::vector<Slot> outputs_;
  Positions positions_;
};

Status Engine::load_program(const void* bytes, size_t size) {
  if (reinterpret_cast<uintptr_t>(bytes) % kProgramAlignment != 0) {
    const size_t rounded = size / kProgramAlignment * kProgramAlignment + kProgramAlignment;
    copy_.reset(std::aligned_alloc(kProgramAlignment, rounded));
    if (copy_ == nullptr) {
      return fail(Error::MemoryAllocationFailed, "no memory for a reference engine of %zu bytes",
                  size);
    }
    std::memcpy(copy_.get(), bytes, size);
    bytes = copy_.get();
  }
  loader_.emplace(bytes, size);
  auto loaded = Program::load(&*loader_, Program::Verification::InternalConsistency);
  if (!loaded.ok()) return failed(loaded.error(), "loading its nested program");
  program_.emplace(std::move(*loaded));
  return read_slots();
}

Status Engine::read_slots() {
  auto meta = program_->method_meta(kMethod);
  if (!meta.ok()) return failed(meta.error(), "finding its method forward");
  inputs_.resize(meta->num_inputs());
  outputs_.resize(meta->num_outputs());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    TRT_ET_TRY(read_slot(meta->input_tag(i), meta->input_tensor_meta(i), "input", i, &inputs_[i]));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    TRT_ET_TRY(
        read_slot(meta->output_tag(i), meta->output_tensor_meta(i), "output", i, &outputs_[i]));
  }
  return {};
}

Status Engine::load(const trt_et_engine_request& request) {
  TRT_ET_TRY(load_program(request.bytes, request.size));
  size_t inputs = 0, outputs = 0;
  for (size_t i = 0; i < request.binding_count; ++i) {
    const bool is_input = request.bindings[i].is_input != 0;
    positions_.emplace_back(is_input, is_input ? inputs++ : outputs++);
  }
  if (inputs != inputs_.size() || outputs != outputs_.size()) {
    return fail(Error::InvalidProgram,
                "reference engine: blob has %zu inputs and %zu outputs, its program %zu and %zu",
                inputs, outputs, inputs_.size(), outputs_.size());
  }
  for (size_t i = 0; i < request.binding_count; ++i) {
    const auto& [is_input, position] = positions_[i];
    const Slot& slot = is_input ? inputs_[position] : outputs_[position];
    TRT_ET_TRY(check_binding(request.bindings[i], slot));
    bindings.push_back(described(slot, is_input));
  }
  return {};
}

}  // namespace
}  // namespace reference

const trt_et_engine_provider& reference_provider() {
  static const trt_et_engine_provider table = host_provider_of<reference::Engine>("reference");
  return table;
}

}  // namespace trt_et
