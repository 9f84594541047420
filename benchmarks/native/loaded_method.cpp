#include "loaded_method.h"

#include <executorch/runtime/core/device_allocator.h>
#include <trt_et/runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace trt_et::bench {

using executorch::extension::MmapDataLoader;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Program;
using executorch::runtime::Tag;
using executorch::runtime::TensorInfo;
using executorch::runtime::etensor::DeviceType;
using executorch::runtime::etensor::Tensor;
using executorch::runtime::etensor::TensorImpl;

void die(const std::string& what) {
  std::fprintf(stderr, "trt_et_bench: %s: %s\n", what.c_str(), trt_et_last_error());
  std::exit(1);
}

LoadedMethod::LoadedMethod(const std::string& path) {
  auto loader = MmapDataLoader::from(path.c_str(), MmapDataLoader::MlockConfig::NoMlock);
  if (!loader.ok()) die(path + " cannot be opened");
  loader_.emplace(std::move(*loader));
  auto program = Program::load(&*loader_, Program::Verification::Minimal);
  if (!program.ok()) die(path + " is not a program");
  program_.emplace(std::move(*program));
  const char* name = *program_->get_method_name(0);
  const auto meta = program_->method_meta(name);
  arenas_.reserve(*meta);
  if (!memory_.plan(*meta, arenas_)) die(path + " gets no memory");
  auto method = program_->load_method(name, &memory_.manager());
  if (!method.ok()) die(path + " does not load");
  method_.emplace(std::move(*method));
}

LoadedMethod::~LoadedMethod() {
  method_.reset();
  auto* allocator = executorch::runtime::get_device_allocator(DeviceType::CUDA);
  for (void* pointer : device_) allocator->deallocate(pointer, 0);
}

void* LoadedMethod::memory_of(const TensorInfo& info, bool on_device) {
  const size_t bytes = info.nbytes();
  host_.emplace_back(new uint8_t[bytes + 1]());
  if (info.scalar_type() == executorch::runtime::etensor::ScalarType::Float) {
    const std::vector<float> ones(bytes / sizeof(float), 1.0F);
    std::memcpy(host_.back().get(), ones.data(), bytes);
  }
  return on_device ? this->on_device(host_.back().get(), bytes) : host_.back().get();
}

void* LoadedMethod::on_device(const void* host, size_t bytes) {
  auto* allocator = executorch::runtime::get_device_allocator(DeviceType::CUDA);
  auto pointer = allocator->allocate(bytes, 0);
  if (!pointer.ok()) die("no device memory");
  device_.push_back(*pointer);
  if (allocator->copy_host_to_device(*pointer, host, bytes, 0) != Error::Ok) {
    die("an input cannot be copied to its device");
  }
  return *pointer;
}

void LoadedMethod::bind(bool on_device) {
  const auto meta = method_->method_meta();
  for (size_t i = 0; i < method_->inputs_size(); ++i) {
    if (*meta.input_tag(i) != Tag::Tensor) continue;
    set_input(i, memory_of(*meta.input_tensor_meta(i), on_device));
  }
  bind_outputs(on_device);
}

void LoadedMethod::bind_on_device(const std::vector<Input>& inputs) {
  if (inputs.size() != method_->inputs_size()) {
    die("the program has " + std::to_string(method_->inputs_size()) + " inputs, not " +
        std::to_string(inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_size(i, inputs[i]);
    set_input(i, on_device(inputs[i].bytes.data(), inputs[i].bytes.size()), inputs[i].sizes);
  }
  bind_outputs(true);
}

void LoadedMethod::set_input(size_t index, const Input& input) {
  check_size(index, input);
  set_input(index, const_cast<char*>(input.bytes.data()), input.sizes);
}

void LoadedMethod::check_size(size_t index, const Input& input) {
  size_t expected = executorch::runtime::elementSize(
      method_->method_meta().input_tensor_meta(index)->scalar_type());
  for (const int32_t size : input.sizes) expected *= static_cast<size_t>(size);
  if (input.bytes.size() == expected) return;
  die("input " + std::to_string(index) + " has " + std::to_string(input.bytes.size()) +
      " bytes; its sizes need " + std::to_string(expected));
}

void LoadedMethod::bind_outputs(bool on_device) {
  const auto meta = method_->method_meta();
  for (size_t i = 0; i < method_->outputs_size(); ++i) {
    const EValue& value = method_->get_output(i);
    const auto info = meta.output_tensor_meta(i);
    if (!value.isTensor() || !info.ok() || info->is_memory_planned()) continue;
    (void)method_->set_output_data_ptr(memory_of(*info, on_device), info->nbytes(), i);
  }
}

std::vector<void*> LoadedMethod::inputs_on_device(size_t count) {
  std::vector<void*> buffers(count);
  const auto info = *method_->method_meta().input_tensor_meta(0);
  for (void*& buffer : buffers) buffer = memory_of(info, true);
  return buffers;
}

void LoadedMethod::set_input(size_t index, void* data, std::vector<int32_t> sizes) {
  const auto info = *method_->method_meta().input_tensor_meta(index);
  if (sizes.empty()) sizes.assign(info.sizes().begin(), info.sizes().end());
  std::vector<uint8_t> order(info.dim_order().begin(), info.dim_order().end());
  std::vector<int32_t> strides(sizes.size());
  int32_t stride = 1;
  for (size_t d = order.size(); d-- > 0; stride *= sizes[order[d]]) strides[order[d]] = stride;
  TensorImpl impl(info.scalar_type(), static_cast<ssize_t>(sizes.size()), sizes.data(), data,
                  order.data(), strides.data());
  if (method_->set_input(EValue(Tensor(&impl)), index) != Error::Ok) die("an input is refused");
}

void LoadedMethod::execute() {
  if (method_->execute() != Error::Ok) die("a run failed");
}

}  // namespace trt_et::bench
