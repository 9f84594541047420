#include "dtype.h"

namespace trt_et {
namespace {

struct Entry {
  const char* name;
  ScalarType type;
  size_t size;
};

constexpr Entry kDtypes[] = {
    {"float32", ScalarType::Float, 4},     {"float16", ScalarType::Half, 2},
    {"bfloat16", ScalarType::BFloat16, 2}, {"int8", ScalarType::Char, 1},
    {"uint8", ScalarType::Byte, 1},        {"int16", ScalarType::Short, 2},
    {"int32", ScalarType::Int, 4},         {"int64", ScalarType::Long, 8},
    {"bool", ScalarType::Bool, 1},         {"float64", ScalarType::Double, 8},
};

}  // namespace

std::optional<ScalarType> dtype_from_name(std::string_view name) {
  for (const Entry& entry : kDtypes) {
    if (name == entry.name) return entry.type;
  }
  return std::nullopt;
}

const char* dtype_name(ScalarType type) {
  for (const Entry& entry : kDtypes) {
    if (type == entry.type) return entry.name;
  }
  return "unsupported";
}

size_t dtype_size(ScalarType type) {
  for (const Entry& entry : kDtypes) {
    if (type == entry.type) return entry.size;
  }
  return 0;
}

bool dense_bytes(ScalarType type, const int64_t* dims, size_t rank, size_t* bytes) {
  size_t total = dtype_size(type);
  if (total == 0) return false;
  for (size_t i = 0; i < rank; ++i) {
    if (dims[i] < 0 || __builtin_mul_overflow(total, static_cast<uint64_t>(dims[i]), &total)) {
      return false;
    }
  }
  // Half of the address space is more than any GPU has, and keeps later sums from wrapping.
  if (total > SIZE_MAX / 2) return false;
  *bytes = total;
  return true;
}

}  // namespace trt_et
