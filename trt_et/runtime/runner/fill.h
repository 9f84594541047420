// Values for inputs that no file gives.
#pragma once

#include <executorch/runtime/core/portable_type/scalar_type.h>

#include <cstdint>
#include <random>
#include <vector>

namespace trt_et::runner {

using executorch::runtime::etensor::ScalarType;

// Ones. False for a dtype that has none.
bool fill_with_ones(std::vector<uint8_t>& bytes, ScalarType dtype);

// Floating-point numbers in [0, 1), and integers that are 0 or 1: indices stay valid. The same for
// the same generator. False for other dtypes.
bool fill_with_random(std::vector<uint8_t>& bytes, ScalarType dtype, std::mt19937_64& generator);

}  // namespace trt_et::runner
