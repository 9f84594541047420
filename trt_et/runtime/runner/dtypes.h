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
#define TRT_ET_CASE(type, name) \
  case ScalarType::name:        \
    return visit(type{}), true;
    ET_FORALL_REALHBF16_TYPES(TRT_ET_CASE)
    // A byte of an output may be neither 0 nor 1.
    TRT_ET_CASE(uint8_t, Bool)
#undef TRT_ET_CASE
    default:
      return false;
  }
}

}  // namespace trt_et::runner
