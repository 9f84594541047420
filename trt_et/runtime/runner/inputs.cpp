#include "inputs.h"

#include <executorch/runtime/core/exec_aten/util/dim_order_util.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <type_traits>

#include "dtypes.h"

namespace trt_et::runner {
namespace {

using executorch::runtime::EValue;
using executorch::runtime::Method;
using executorch::runtime::Tag;
using executorch::runtime::etensor::Tensor;
using executorch::runtime::etensor::TensorImpl;

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<FILE, CloseFile>;

// An array as numpy.save() writes it.
struct NpyArray {
  std::string descr;  // the dtype: "<f4"
  std::vector<int32_t> shape;
  std::vector<uint8_t> bytes;  // in C order
};

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicSize = sizeof kMagic - 1;
constexpr size_t kMaxHeader = size_t{1} << 16;

bool read_exactly(FILE* file, void* to, size_t size) {
  return size == 0 || std::fread(to, 1, size, file) == size;
}

// The Python dictionary at the front of the file.
bool read_header(FILE* file, std::string* header) {
  uint8_t front[kMagicSize + 2] = {}, length[4] = {};
  if (!read_exactly(file, front, sizeof front) || std::memcmp(front, kMagic, kMagicSize) != 0) {
    return false;
  }
  const uint8_t version = front[kMagicSize];
  if (version < 1 || version > 3 || !read_exactly(file, length, version == 1 ? 2 : 4)) return false;
  size_t size = 0;
  for (size_t i = 0; i < 4; ++i) size |= static_cast<size_t>(length[i]) << 8 * i;
  if (size > kMaxHeader) return false;
  header->resize(size);
  return read_exactly(file, header->data(), size);
}

// The text between what follows the key and the next `end`; numpy writes the keys in one way.
bool find(const std::string& header, const char* key, char end, std::string* value) {
  const size_t at = header.find(key);
  if (at == header.npos) return false;
  const size_t begin = at + std::strlen(key), stop = header.find(end, begin);
  if (stop == header.npos) return false;
  *value = header.substr(begin, stop - begin);
  return true;
}

// "2, 8" or "2,", without the parentheses.
bool parse_shape(const std::string& text, std::vector<int32_t>* shape) {
  const char* at = text.c_str();
  while (*at != '\0') {
    char* end = nullptr;
    errno = 0;
    const long long size = std::strtoll(at, &end, 10);
    if (end == at || errno != 0 || size < 0 || size > INT32_MAX) return false;
    shape->push_back(static_cast<int32_t>(size));
    at = end + std::strspn(end, " ");
    if (*at == ',') at += 1 + std::strspn(at + 1, " ");
  }
  return true;
}

// Reads a .npy file of at most `limit` bytes of data. False, and the reason, where it is not one.
bool read_npy(const std::string& path, size_t limit, NpyArray* array, std::string* problem) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return *problem = std::strerror(errno), false;
  std::string header, order, shape;
  if (!read_header(file.get(), &header) || !find(header, "'descr': '", '\'', &array->descr) ||
      !find(header, "'fortran_order': ", ',', &order) || !find(header, "'shape': (", ')', &shape) ||
      !parse_shape(shape, &array->shape)) {
    return *problem = "is no .npy file of one array", false;
  }
  if (order != "False") {
    return *problem = "is in Fortran order: save numpy.ascontiguousarray(...)", false;
  }
  array->bytes.resize(limit + 1);
  array->bytes.resize(std::fread(array->bytes.data(), 1, limit + 1, file.get()));
  if (std::ferror(file.get()) != 0) return *problem = "cannot be read", false;
  return true;
}

std::string shape_text(const std::vector<int32_t>& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}

std::string text_of(ScalarType dtype, const std::vector<int32_t>& sizes) {
  return std::string(executorch::runtime::toString(dtype)) + " " + shape_text(sizes);
}

// Whether numpy's name of a dtype is that of a tensor. It has no bfloat16: other packages save that
// as two bytes.
bool is_dtype(const std::string& descr, ScalarType dtype) {
  constexpr std::pair<const char*, ScalarType> kNames[] = {
      {"<f4", ScalarType::Float},    {"<f8", ScalarType::Double},  {"<f2", ScalarType::Half},
      {"<i8", ScalarType::Long},     {"<i4", ScalarType::Int},     {"<i2", ScalarType::Short},
      {"|i1", ScalarType::Char},     {"|u1", ScalarType::Byte},    {"|b1", ScalarType::Bool},
      {"|V2", ScalarType::BFloat16}, {"<V2", ScalarType::BFloat16}};
  for (const auto& [name, type] : kNames) {
    if (descr == name && type == dtype) return true;
  }
  return false;
}

// From C order into the order that the strides say.
void copy_in_order(const NpyArray& array, const std::vector<int32_t>& strides,
                   std::vector<uint8_t>& bytes) {
  size_t count = 1;
  for (const int32_t size : array.shape) count *= static_cast<size_t>(size);
  const size_t width = count == 0 ? 0 : bytes.size() / count;
  for (size_t i = 0; i < count; ++i) {
    size_t rest = i, at = 0;
    for (size_t dim = array.shape.size(); dim-- > 0;) {
      const auto size = static_cast<size_t>(array.shape[dim]);
      at += rest % size * static_cast<size_t>(strides[dim]);
      rest /= size;
    }
    std::memcpy(bytes.data() + at * width, array.bytes.data() + i * width, width);
  }
}

// Fills `bytes` exactly; a file of another size is an error that says what was expected.
bool read_file(const std::string& path, size_t index, const std::string& what,
               std::vector<uint8_t>& bytes) {
  const File file(std::fopen(path.c_str(), "rb"));
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

// Every element from `real` or `integer`.
template <typename Real, typename Integer>
bool fill(std::vector<uint8_t>& bytes, ScalarType dtype, Real&& real, Integer&& integer) {
  return visit_dtype(dtype, [&](auto value) {
    using T = decltype(value);
    for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
      if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(integer());
      } else {
        value = static_cast<T>(real());
      }
      std::memcpy(bytes.data() + i, &value, sizeof(T));
    }
  });
}

bool fill_with_ones(std::vector<uint8_t>& bytes, ScalarType dtype) {
  return fill(bytes, dtype, [] { return 1.0F; }, [] { return uint8_t{1}; });
}

// Floating-point numbers in [0, 1), and integers that are 0 or 1: indices stay valid.
bool fill_with_random(std::vector<uint8_t>& bytes, ScalarType dtype, std::mt19937_64& generator) {
  // Not a distribution of the standard library: those differ between implementations.
  const auto real = [&] { return static_cast<float>(generator() >> 40) / (1 << 24); };
  const auto integer = [&] { return static_cast<uint8_t>(generator() >> 63); };
  return fill(bytes, dtype, real, integer);
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
  return resize(index, input->sizes, input);
}

bool Inputs::resize(size_t index, const std::vector<int32_t>& sizes, Input* input) {
  bool fits = sizes.size() == input->sizes.size();
  for (size_t i = 0; fits && i < sizes.size(); ++i) fits = sizes[i] <= input->sizes[i];
  if (!fits) {
    std::fprintf(stderr, "executor_runner: input %zu is %s at most; it cannot be %s\n", index,
                 text_of(input->dtype, input->sizes).c_str(), shape_text(sizes).c_str());
    return false;
  }
  input->sizes = sizes;
  input->strides.resize(sizes.size());
  executorch::runtime::dim_order_to_stride_nocheck(sizes.data(), input->dim_order.data(),
                                                   sizes.size(), input->strides.data());
  size_t bytes = executorch::runtime::elementSize(input->dtype);
  for (const int32_t size : sizes) bytes *= static_cast<size_t>(size);
  input->bytes.resize(bytes);
  return true;
}

bool Inputs::read_array(const std::string& path, size_t index, bool has_sizes, Input* input) {
  NpyArray array;
  std::string problem;
  if (!read_npy(path, input->bytes.size(), &array, &problem)) {
    std::fprintf(stderr, "executor_runner: input file %s: %s\n", path.c_str(), problem.c_str());
    return false;
  }
  if (!is_dtype(array.descr, input->dtype)) {
    std::fprintf(stderr, "executor_runner: input %zu is %s; %s has the dtype '%s'\n", index,
                 text_of(input->dtype, input->sizes).c_str(), path.c_str(), array.descr.c_str());
    return false;
  }
  if (has_sizes && array.shape != input->sizes) {
    std::fprintf(stderr, "executor_runner: input %zu is to be %s; %s has %s\n", index,
                 shape_text(input->sizes).c_str(), path.c_str(), shape_text(array.shape).c_str());
    return false;
  }
  if (!resize(index, array.shape, input)) return false;
  if (array.bytes.size() != input->bytes.size()) {
    std::fprintf(stderr, "executor_runner: input %zu is %s: expected %zu bytes of data in %s\n",
                 index, text_of(input->dtype, input->sizes).c_str(), input->bytes.size(),
                 path.c_str());
    return false;
  }
  copy_in_order(array, input->strides, input->bytes);
  return true;
}

bool Inputs::fill_or_read(const Flags& flags, size_t index, size_t tensor,
                          std::mt19937_64& generator, Input* input) {
  const bool has_sizes = !flags.input_sizes.empty() && !flags.input_sizes[tensor].empty();
  if (has_sizes && !resize(index, flags.input_sizes[tensor], input)) return false;
  const std::string what = text_of(input->dtype, input->sizes);
  if (!flags.inputs.empty()) {
    const std::string& path = flags.inputs[tensor];
    const bool is_array = path.size() > 4 && path.compare(path.size() - 4, 4, ".npy") == 0;
    return is_array ? read_array(path, index, has_sizes, input)
                    : read_file(path, index, what, input->bytes);
  }
  const bool filled = flags.random_seed ? fill_with_random(input->bytes, input->dtype, generator)
                                        : fill_with_ones(input->bytes, input->dtype);
  if (filled) return true;
  std::fprintf(stderr, "executor_runner: input %zu is %s: give its bytes with --inputs\n", index,
               what.c_str());
  return false;
}

bool Inputs::prepare(Method& method, const Flags& flags) {
  inputs_.resize(method.inputs_size());
  size_t tensors = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!describe(method, i, &inputs_[i])) return false;
    tensors += inputs_[i].is_tensor ? 1 : 0;
  }
  const std::pair<const char*, size_t> given[] = {{"inputs", flags.inputs.size()},
                                                  {"input_sizes", flags.input_sizes.size()}};
  for (const auto& [flag, count] : given) {
    if (count == 0 || count == tensors) continue;
    std::fprintf(stderr, "executor_runner: the method has %zu tensor input(s), --%s names %zu\n",
                 tensors, flag, count);
    return false;
  }
  std::mt19937_64 generator(flags.random_seed.value_or(0));
  size_t tensor = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].is_tensor) continue;
    if (!fill_or_read(flags, i, tensor++, generator, &inputs_[i])) return false;
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
      std::fprintf(stderr, "executor_runner: input %zu%s%s is refused: %s\n", i,
                   input.is_tensor ? " of the sizes " : "",
                   input.is_tensor ? shape_text(input.sizes).c_str() : "",
                   executorch::runtime::to_string(error));
      return false;
    }
  }
  return true;
}

}  // namespace trt_et::runner
