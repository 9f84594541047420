// The dtype names of the blob and ExecuTorch's scalar types.
#pragma once

#include <executorch/runtime/core/portable_type/scalar_type.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trt_et {

using executorch::runtime::etensor::ScalarType;

// Nothing for a name that docs/blob.md does not list.
std::optional<ScalarType> dtype_from_name(std::string_view name);

// The blob's name of a scalar type; "unsupported" for the types that no engine has.
const char* dtype_name(ScalarType type);

// Bytes per element of a type that dtype_from_name() can return.
size_t dtype_size(ScalarType type);

// Bytes of a dense tensor; false if that does not fit or a dimension is negative.
bool dense_bytes(ScalarType type, const int64_t* dims, size_t rank, size_t* bytes);

}  // namespace trt_et
