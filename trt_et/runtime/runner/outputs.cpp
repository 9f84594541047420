#include "outputs.h"

#include <executorch/runtime/core/device_allocator.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "dtypes.h"

namespace trt_et::runner {
namespace {

using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Method;
using executorch::runtime::etensor::Tensor;

// The tensor's bytes on the host, copied from its device where it is on one.
bool host_bytes(const Tensor& tensor, const MethodMemory& memory, size_t index,
                std::vector<uint8_t>* bytes) {
  bytes->resize(tensor.nbytes());
  if (bytes->empty()) return true;
  const auto* device = memory.device_of(tensor.const_data_ptr());
  if (device == nullptr) {
    std::memcpy(bytes->data(), tensor.const_data_ptr(), bytes->size());
    return true;
  }
  auto* allocator = executorch::runtime::get_device_allocator(device->type());
  if (allocator != nullptr &&
      allocator->copy_device_to_host(bytes->data(), tensor.const_data_ptr(), bytes->size(),
                                     device->index()) == Error::Ok) {
    return true;
  }
  std::fprintf(stderr, "executor_runner: output %zu cannot be copied from its device\n", index);
  return false;
}

double element(const std::vector<uint8_t>& bytes, ScalarType dtype, size_t index) {
  double element = 0;
  const auto read = [&](auto value) {
    std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
    if constexpr (std::is_arithmetic_v<decltype(value)>) {
      element = static_cast<double>(value);
    } else {
      element = static_cast<float>(value);
    }
  };
  if (!visit_dtype(dtype, read)) read(uint8_t{});
  return element;
}

void print_tensor(const Tensor& tensor, const std::vector<uint8_t>& bytes, size_t index,
                  PrintOutput mode) {
  const auto dtype = tensor.scalar_type();
  std::printf("Output %zu: %s [", index, executorch::runtime::toString(dtype));
  for (ssize_t i = 0; i < tensor.dim(); ++i) {
    std::printf("%s%d", i == 0 ? "" : ", ", static_cast<int>(tensor.size(i)));
  }
  std::printf("], %zu bytes\n", bytes.size());
  if (mode != PrintOutput::all) return;
  const size_t count = static_cast<size_t>(tensor.numel());
  for (size_t i = 0; i < count; ++i) {
    std::printf("%s%.7g", i == 0 ? "" : i % 10 == 0 ? "\n" : " ", element(bytes, dtype, i));
  }
  std::printf("\n");
}

void print_value(const EValue& value, size_t index) {
  if (value.isInt()) {
    std::printf("Output %zu: int %" PRId64 "\n", index, value.toInt());
  } else if (value.isDouble()) {
    std::printf("Output %zu: float %g\n", index, value.toDouble());
  } else if (value.isBool()) {
    std::printf("Output %zu: bool %s\n", index, value.toBool() ? "true" : "false");
  } else {
    std::printf("Output %zu: not a tensor or number\n", index);
  }
}

}  // namespace

bool write_file(const char* what, const std::string& path, const void* bytes, size_t size) {
  FILE* file = std::fopen(path.c_str(), "wb");
  const bool opened = file != nullptr;
  const size_t written = opened && size > 0 ? std::fwrite(bytes, 1, size, file) : 0;
  const bool closed = opened && std::fclose(file) == 0;
  if (closed && written == size) return true;
  std::fprintf(stderr, "executor_runner: %s file %s: %s\n", what, path.c_str(),
               std::strerror(errno));
  return false;
}

bool Outputs::prepare(Method& method) {
  const auto meta = method.method_meta();
  for (size_t i = 0; i < method.outputs_size(); ++i) {
    const EValue& value = method.get_output(i);
    if (!value.isTensor() || value.toTensor().const_data_ptr() != nullptr) continue;
    const auto info = meta.output_tensor_meta(i);
    if (!info.ok() || info->is_memory_planned()) continue;
    buffers_.emplace_back(new uint8_t[info->nbytes() + 1]);
    const Error error = method.set_output_data_ptr(buffers_.back().get(), info->nbytes(), i);
    if (error == Error::Ok) continue;
    std::fprintf(stderr, "executor_runner: output %zu takes no memory: %s\n", i,
                 executorch::runtime::to_string(error));
    return false;
  }
  return true;
}

bool Outputs::deliver(Method& method, const MethodMemory& memory, PrintOutput mode,
                      const std::string& base) {
  for (size_t i = 0; i < method.outputs_size(); ++i) {
    const EValue& value = method.get_output(i);
    if (!value.isTensor()) {
      if (mode != PrintOutput::none) print_value(value, i);
      continue;
    }
    std::vector<uint8_t> bytes;
    if (!host_bytes(value.toTensor(), memory, i, &bytes)) return false;
    if (mode != PrintOutput::none) print_tensor(value.toTensor(), bytes, i, mode);
    const std::string path = base + "-" + std::to_string(i) + ".bin";
    if (!base.empty() && !write_file("output", path, bytes.data(), bytes.size())) return false;
  }
  return true;
}

}  // namespace trt_et::runner
