#include "loaded_program.h"

#include <new>

namespace trt_et::hard_use {

using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Program;
using executorch::runtime::Tag;
using executorch::runtime::etensor::Tensor;
using executorch::runtime::etensor::TensorImpl;

bool LoadedProgram::load(Program::Verification verification) {
  auto program = Program::load(&loader_, verification);
  if (!program.ok()) return false;
  program_.emplace(std::move(*program));
  const auto name = program_->get_method_name(0);
  if (!name.ok()) return false;
  const auto meta = program_->method_meta(*name);
  if (!meta.ok()) return false;
  arenas_.reserve(*meta);
  if (!memory_.plan(*meta, arenas_)) return false;
  auto method = program_->load_method(*name, &memory_.manager());
  if (!method.ok()) return false;
  method_.emplace(std::move(*method));
  host_.resize(method_->inputs_size());
  return set_inputs();
}

// Before each run: the planner may have given the memory of the inputs to other tensors.
bool LoadedProgram::set_inputs() {
  for (size_t i = 0; i < method_->inputs_size(); ++i) {
    if (!set_input(i)) return false;
  }
  return true;
}

bool LoadedProgram::set_input(size_t index) {
  const auto meta = method_->method_meta();
  const auto tag = meta.input_tag(index);
  if (!tag.ok()) return false;
  if (*tag != Tag::Tensor) return true;
  const auto info = meta.input_tensor_meta(index);
  if (!info.ok()) return false;
  std::vector<int32_t> sizes(info->sizes().begin(), info->sizes().end());
  std::vector<uint8_t> order(info->dim_order().begin(), info->dim_order().end());
  std::vector<int32_t> strides(sizes.size());
  int32_t stride = 1;
  for (size_t d = order.size(); d-- > 0;) {
    if (order[d] >= sizes.size()) return false;
    strides[order[d]] = stride;
    stride = static_cast<int32_t>(static_cast<uint32_t>(stride) *
                                  static_cast<uint32_t>(sizes[order[d]]));
  }
  if (host_[index] == nullptr) host_[index].reset(new (std::nothrow) uint8_t[info->nbytes() + 1]);
  if (host_[index] == nullptr) return false;
  auto* values = reinterpret_cast<float*>(host_[index].get());
  for (size_t i = 0; i < info->nbytes() / sizeof(float); ++i) values[i] = 1.0F;
  TensorImpl impl(info->scalar_type(), static_cast<ssize_t>(sizes.size()), sizes.data(),
                  host_[index].get(), order.data(), strides.data());
  return method_->set_input(EValue(Tensor(&impl)), index) == Error::Ok;
}

bool LoadedProgram::execute() { return set_inputs() && method_->execute() == Error::Ok; }

Bytes LoadedProgram::outputs() const {
  Bytes bytes;
  for (size_t i = 0; i < method_->outputs_size(); ++i) {
    const EValue& value = method_->get_output(i);
    if (!value.isTensor()) continue;
    const auto* data = static_cast<const uint8_t*>(value.toTensor().const_data_ptr());
    if (data != nullptr) bytes.insert(bytes.end(), data, data + value.toTensor().nbytes());
  }
  return bytes;
}

}  // namespace trt_et::hard_use
