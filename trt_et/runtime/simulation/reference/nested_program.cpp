#include "nested_program.h"

#include <executorch/runtime/core/exec_aten/util/tensor_util.h>

#include <cstring>

namespace trt_et::reference {
namespace {

using executorch::runtime::EValue;
using executorch::runtime::HierarchicalAllocator;
using executorch::runtime::MemoryManager;
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

}  // namespace

Status NestedProgram::load(const void* bytes, size_t size,
                           std::unique_ptr<NestedProgram>* program) {
  std::unique_ptr<NestedProgram> nested(new NestedProgram);
  if (reinterpret_cast<uintptr_t>(bytes) % kProgramAlignment != 0) {
    const size_t rounded = size / kProgramAlignment * kProgramAlignment + kProgramAlignment;
    nested->copy_.reset(std::aligned_alloc(kProgramAlignment, rounded));
    if (nested->copy_ == nullptr) {
      return fail(Error::MemoryAllocationFailed, "no memory for a reference engine of %zu bytes",
                  size);
    }
    std::memcpy(nested->copy_.get(), bytes, size);
    bytes = nested->copy_.get();
  }
  nested->loader_.emplace(bytes, size);
  auto loaded = Program::load(&*nested->loader_, Program::Verification::InternalConsistency);
  if (!loaded.ok()) return failed(loaded.error(), "loading its nested program");
  nested->program_.emplace(std::move(*loaded));
  TRT_ET_TRY(nested->read_slots());
  *program = std::move(nested);
  return {};
}

Status NestedProgram::read_slots() {
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

Status NestedMethod::load(NestedProgram& program, std::unique_ptr<NestedMethod>* method) {
  std::unique_ptr<NestedMethod> nested(new NestedMethod);
  nested->program_ = &program;
  auto meta = program.program().method_meta(kMethod);
  if (!meta.ok()) return failed(meta.error(), "finding its method forward");
  TRT_ET_TRY(nested->plan_memory(*meta));
  nested->manager_.emplace(&nested->method_allocator_, &*nested->planned_,
                           &nested->temp_allocator_);
  auto loaded = program.program().load_method(kMethod, &*nested->manager_);
  if (!loaded.ok()) return failed(loaded.error(), "loading its method forward");
  nested->method_.emplace(std::move(*loaded));
  // Outputs that were left out of the memory plan get memory here.
  for (size_t i = 0; i < program.outputs().size(); ++i) {
    auto info = meta->output_tensor_meta(i);
    const auto& value = nested->method_->get_output(i);
    if (!info.ok() || info->is_memory_planned() || !value.isTensor()) continue;
    if (value.toTensor().const_data_ptr() != nullptr) continue;
    nested->output_buffers_.emplace_back(new uint8_t[info->nbytes() + 1]);
    const Error error = nested->method_->set_output_data_ptr(nested->output_buffers_.back().get(),
                                                             info->nbytes(), i);
    if (error != Error::Ok) return failed(error, "setting an output");
  }
  *method = std::move(nested);
  return {};
}

Status NestedMethod::plan_memory(const MethodMeta& meta) {
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

Status NestedMethod::execute() {
  const Error error = method_->execute();
  return error == Error::Ok ? Status{} : failed(error, "its nested program");
}

Status NestedMethod::set_input(size_t index, const HostMemory& memory) {
  const Slot& slot = program_->inputs()[index];
  const size_t rank = slot.sizes.size();
  if (memory.dims.size() != rank) {
    return fail(Error::InvalidArgument, "reference engine: input %zu has rank %zu, expected %zu",
                index, memory.dims.size(), rank);
  }
  int32_t sizes[TRT_ET_MAX_RANK] = {}, strides[TRT_ET_MAX_RANK] = {};
  uint8_t order[TRT_ET_MAX_RANK] = {};
  int32_t stride = 1;
  for (size_t i = rank; i-- > 0;) {
    order[i] = slot.dim_order[i];
    sizes[order[i]] = static_cast<int32_t>(memory.dims[i]);
    strides[order[i]] = stride;
    stride *= memory.dims[i] == 0 ? 1 : static_cast<int32_t>(memory.dims[i]);
  }
  TensorImpl impl(slot.dtype, static_cast<ssize_t>(rank), sizes, memory.address, order, strides);
  const Error error = method_->set_input(EValue(Tensor(&impl)), index);
  return error == Error::Ok ? Status{} : failed(error, "setting an input");
}

Status NestedMethod::take_output(size_t index, HostMemory* memory) {
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

}  // namespace trt_et::reference
