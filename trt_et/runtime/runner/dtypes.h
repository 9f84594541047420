// Dtypes in C++.
#pragma once

#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>

#include <cstdint>

namespace trt_et::runner {

using executorch::runtime::etensor::ScalarType;

// Calls `visit` with a zero of the type in C++ of a dtype. False for a dtype that has none here.
template <typename F>
bool visit_dtype(ScalarType dtype, F&& visit) {
  switch (dtype) {
    case ScalarType::Float:
      return visit(float{}), true;
    case ScalarType::Double:
      return visit(double{}), true;
    case ScalarType::Half:
      return visit(executorch::runtime::etensor::Half{}), true;
    case ScalarType::BFloat16:
      return visit(executorch::runtime::etensor::BFloat16{}), true;
    case ScalarType::Long:
      return visit(int64_t{}), true;
    case ScalarType::Int:
      return visit(int32_t{}), true;
    case ScalarType::Short:
      return visit(int16_t{}), true;
    case ScalarType::Char:
      return visit(int8_t{}), true;
    case ScalarType::Byte:
    case ScalarType::Bool:
      return visit(uint8_t{}), true;
    default:
      return false;
  }
}

}  // namespace trt_et::runner
