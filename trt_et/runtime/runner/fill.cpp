#include "fill.h"

#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>

#include <cstring>

namespace trt_et::runner {
namespace {

using executorch::runtime::etensor::BFloat16;
using executorch::runtime::etensor::Half;

// Every element from `next`, a function that gives a T.
template <typename T, typename Next>
void fill(std::vector<uint8_t>& bytes, Next&& next) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    const T value(next());
    std::memcpy(bytes.data() + i, &value, sizeof(T));
  }
}

template <typename Real, typename Integer>
bool fill_by_dtype(std::vector<uint8_t>& bytes, ScalarType dtype, Real&& real, Integer&& integer) {
  switch (dtype) {
    case ScalarType::Float:
      return fill<float>(bytes, real), true;
    case ScalarType::Double:
      return fill<double>(bytes, real), true;
    case ScalarType::Half:
      return fill<Half>(bytes, real), true;
    case ScalarType::BFloat16:
      return fill<BFloat16>(bytes, real), true;
    case ScalarType::Long:
      return fill<int64_t>(bytes, integer), true;
    case ScalarType::Int:
      return fill<int32_t>(bytes, integer), true;
    case ScalarType::Short:
      return fill<int16_t>(bytes, integer), true;
    case ScalarType::Char:
    case ScalarType::Byte:
    case ScalarType::Bool:
      return fill<uint8_t>(bytes, integer), true;
    default:
      return false;
  }
}

}  // namespace

bool fill_with_ones(std::vector<uint8_t>& bytes, ScalarType dtype) {
  return fill_by_dtype(bytes, dtype, [] { return 1.0F; }, [] { return uint8_t{1}; });
}

bool fill_with_random(std::vector<uint8_t>& bytes, ScalarType dtype, std::mt19937_64& generator) {
  // Not a distribution of the standard library: those differ between implementations.
  const auto real = [&] { return static_cast<float>(generator() >> 40) / (1 << 24); };
  const auto integer = [&] { return static_cast<uint8_t>(generator() >> 63); };
  return fill_by_dtype(bytes, dtype, real, integer);
}

}  // namespace trt_et::runner
