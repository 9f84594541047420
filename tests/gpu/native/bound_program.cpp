#include "bound_program.h"

#include <trt_et/runtime.h>

#include <algorithm>
#include <cmath>

namespace trt_et::gpu_check {
namespace {

using cuda::CopyKind;

int key(float value) { return std::isnan(value) ? -1 : static_cast<int>(value); }

}  // namespace

void check(const Status& status, const char* what) {
  if (!status.ok()) bench::die(std::string(what) + ": " + status.text);
}

cuda::Api& cuda0() {
  cuda::Api* found = nullptr;
  check(cuda::access(&found), "CUDA");
  cuda::Entered entered;
  check(found->enter_device(0, &entered), "choosing cuda:0");
  return *found;
}

BoundProgram::BoundProgram(const std::string& path) : method_(path) {
  method_.bind(true);
  auto& method = method_.method();
  std::vector<executorch::runtime::EValue> values(method.inputs_size());
  if (method.get_inputs(values.data(), values.size()) != Error::Ok) bench::die("inputs");
  for (const auto& value : values) add(inputs_, value);
  for (size_t i = 0; i < method.outputs_size(); ++i) add(outputs_, method.get_output(i));
  for (const float value : {1.0F, 2.0F, NAN}) {
    for (const Tensor& input : inputs_) patterns_[key(value)].emplace_back(input.bytes / 4, value);
  }
}

void BoundProgram::add(std::vector<Tensor>& tensors, const executorch::runtime::EValue& value) {
  if (!value.isTensor()) return;
  const auto& tensor = value.toTensor();
  tensors.push_back({const_cast<void*>(tensor.const_data_ptr()), tensor.nbytes()});
}

void BoundProgram::write(float value, cuda::Stream stream) {
  const auto& patterns = patterns_.at(key(value));
  for (size_t i = 0; i < inputs_.size(); ++i) {
    check(cuda0().copy(inputs_[i].data, patterns[i].data(), inputs_[i].bytes,
                       CopyKind::host_to_device, stream),
          "a copy to the GPU");
  }
}

Floats BoundProgram::read(cuda::Stream stream) {
  size_t bytes = 0;
  for (const Tensor& output : outputs_) bytes += output.bytes;
  Floats found(bytes / 4);
  auto* to = reinterpret_cast<uint8_t*>(found.data());
  for (const Tensor& output : outputs_) {
    check(cuda0().copy(to, output.data, output.bytes, CopyKind::device_to_host, stream),
          "a copy to the host");
    to += output.bytes;
  }
  check(cuda0().synchronize_stream(stream), "waiting");
  return found;
}

Floats BoundProgram::run_alone(float value) {
  const auto wait_for_everything = [] {  // As freeing memory does.
    void* memory = nullptr;
    check(cuda0().allocate(1, &memory), "allocating");
    check(cuda0().release(memory), "releasing");
  };
  write(value);
  wait_for_everything();
  execute();
  wait_for_everything();
  return read();
}

Floats BoundProgram::run_between_copies(float value, cuda::Stream stream) {
  write(value, stream);
  execute();
  write(NAN, stream);
  return read(stream);
}

size_t BoundProgram::floats() const {
  size_t bytes = 0;
  for (const auto* tensors : {&inputs_, &outputs_}) {
    for (const Tensor& tensor : *tensors) bytes += tensor.bytes;
  }
  return bytes / 4;
}

Floats BoundProgram::run_on(float value, float* memory) {
  auto& method = method_.method();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    std::fill(memory, memory + inputs_[i].bytes / 4, value);
    method_.set_input(i, memory);
    memory += inputs_[i].bytes / 4;
  }
  float* const results = memory;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (method.set_output_data_ptr(memory, outputs_[i].bytes, i) != Error::Ok)
      bench::die("outputs");
    memory += outputs_[i].bytes / 4;
  }
  execute();
  // Managed memory in a tensor of the GPU's is the GPU's until the caller waits.
  if (trt_et_wait(0) != 0) bench::die("waiting");
  return {results, memory};
}

std::map<int, Floats> expected_of(const std::string& path) {
  BoundProgram program(path);
  const std::map<int, Floats> expected = {{1, program.run_alone(1)}, {2, program.run_alone(2)}};
  if (expected.at(1) == expected.at(2)) bench::die("both inputs give the same output");
  return expected;
}

}  // namespace trt_et::gpu_check
