#include "inputs.h"

#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace trt_et::runner {
namespace {

using executorch::runtime::EValue;
using executorch::runtime::Method;
using executorch::runtime::Tag;
using executorch::runtime::etensor::BFloat16;
using executorch::runtime::etensor::Half;
using executorch::runtime::etensor::ScalarType;
using executorch::runtime::etensor::Tensor;
using executorch::runtime::etensor::TensorImpl;

template <typename T>
void fill(std::vector<uint8_t>& bytes, T value) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    std::memcpy(bytes.data() + i, &value, sizeof(T));
  }
}

bool fill_with_ones(std::vector<uint8_t>& bytes, ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float:
      fill(bytes, 1.0F);
      return true;
    case ScalarType::Double:
      fill(bytes, 1.0);
      return true;
    case ScalarType::Half:
      fill(bytes, Half(1.0F));
      return true;
    case ScalarType::BFloat16:
      fill(bytes, BFloat16(1.0F));
      return true;
    case ScalarType::Long:
      fill(bytes, int64_t{1});
      return true;
    case ScalarType::Int:
      fill(bytes, int32_t{1});
      return true;
    case ScalarType::Short:
      fill(bytes, int16_t{1});
      return true;
    case ScalarType::Char:
    case ScalarType::Byte:
    case ScalarType::Bool:
      fill(bytes, uint8_t{1});
      return true;
    default:
      return false;
  }
}

std::string shape_text(const std::vector<int32_t>& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};

// Fills `bytes` exactly; a file of another size is an error that says what was expected.
bool read_file(const std::string& path, size_t index, const std::string& what,
               std::vector<uint8_t>& bytes) {
  const std::unique_ptr<FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    std::fprintf(stderr, "executor_runner: input file %s: %s\n", path.c_str(),
                 std::strerror(errno));
    return false;
  }
  const size_t expected = bytes.size();
  bytes.resize(expected + 1);
  const size_t found = std::fread(bytes.data(), 1, bytes.size(), file.get());
  bytes.resize(expected);
  if (std::ferror(file.get()) != 0) {
    std::fprintf(stderr, "executor_runner: input file %s cannot be read\n", path.c_str());
    return false;
  }
  if (found == expected) return true;
  std::fseek(file.get(), 0, SEEK_END);
  std::fprintf(stderr, "executor_runner: input %zu is %s: expected %zu bytes, %s has %ld\n", index,
               what.c_str(), expected, path.c_str(), std::ftell(file.get()));
  return false;
}

// The inputs as the method holds them. The call is marked deprecated, but nothing else tells the
// value of a constant input, or the device of a tensor.
bool read_inputs(Method& method, std::vector<EValue>* values) {
  values->resize(method.inputs_size());
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const auto error = method.get_inputs(values->data(), values->size());
#pragma GCC diagnostic pop
  if (error == executorch::runtime::Error::Ok) return true;
  std::fprintf(stderr, "executor_runner: the method's inputs cannot be read\n");
  return false;
}

}  // namespace

bool Inputs::describe(Method& method, size_t index, Input* input) {
  const auto meta = method.method_meta();
  const auto tag = meta.input_tag(index);
  if (!tag.ok()) {
    std::fprintf(stderr, "executor_runner: input %zu is of an unknown type\n", index);
    return false;
  }
  if (*tag != Tag::Tensor) return true;
  const auto info = meta.input_tensor_meta(index);
  if (!info.ok()) {
    std::fprintf(stderr, "executor_runner: input %zu cannot be described\n", index);
    return false;
  }
  input->is_tensor = true;
  input->dtype = info->scalar_type();
  input->sizes.assign(info->sizes().begin(), info->sizes().end());
  input->dim_order.assign(info->dim_order().begin(), info->dim_order().end());
  input->strides.resize(input->sizes.size());
  int32_t stride = 1;
  for (size_t i = input->dim_order.size(); i-- > 0;) {
    const size_t dim = input->dim_order[i];
    input->strides[dim] = stride;
    stride *= input->sizes[dim] == 0 ? 1 : input->sizes[dim];
  }
  input->bytes.resize(info->nbytes());
  return true;
}

bool Inputs::prepare(Method& method, const std::vector<std::string>& files) {
  inputs_.resize(method.inputs_size());
  size_t tensors = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!describe(method, i, &inputs_[i])) return false;
    tensors += inputs_[i].is_tensor ? 1 : 0;
  }
  if (!files.empty() && files.size() != tensors) {
    std::fprintf(stderr,
                 "executor_runner: the method has %zu tensor input(s), --inputs names %zu\n",
                 tensors, files.size());
    return false;
  }
  size_t next_file = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Input& input = inputs_[i];
    if (!input.is_tensor) continue;
    const std::string what =
        std::string(executorch::runtime::toString(input.dtype)) + " " + shape_text(input.sizes);
    if (!files.empty()) {
      if (!read_file(files[next_file++], i, what, input.bytes)) return false;
    } else if (!fill_with_ones(input.bytes, input.dtype)) {
      std::fprintf(stderr, "executor_runner: input %zu is %s: give its bytes with --inputs\n", i,
                   what.c_str());
      return false;
    }
  }
  return true;
}

bool Inputs::set(Method& method, const MethodMemory& memory) {
  std::vector<EValue> current;
  if (!read_inputs(method, &current)) return false;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Input& input = inputs_[i];
    executorch::runtime::Error error;
    if (input.is_tensor) {
      if (memory.device_of(current[i].toTensor().const_data_ptr()) != nullptr) {
        std::fprintf(stderr,
                     "executor_runner: input %zu is in device memory; export it for the host\n", i);
        return false;
      }
      TensorImpl impl(input.dtype, static_cast<ssize_t>(input.sizes.size()), input.sizes.data(),
                      input.bytes.data(), input.dim_order.data(), input.strides.data());
      error = method.set_input(EValue(Tensor(&impl)), i);
    } else {
      // A number or string is a constant of the program: the method only takes the same again.
      error = method.set_input(current[i], i);
    }
    if (error != executorch::runtime::Error::Ok) {
      std::fprintf(stderr, "executor_runner: input %zu is refused: %s\n", i,
                   executorch::runtime::to_string(error));
      return false;
    }
  }
  return true;
}

}  // namespace trt_et::runner
