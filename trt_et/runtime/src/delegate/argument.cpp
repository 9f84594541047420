#include "argument.h"

#include <executorch/runtime/core/exec_aten/util/tensor_util.h>

#include <algorithm>

namespace trt_et {
namespace {

const char* direction(const TensorSpec& expected) { return expected.is_input ? "input" : "output"; }

// Whether the memory is laid out in the order of the dimensions; those of size 1 may be anywhere.
bool is_contiguous(const Tensor& tensor) {
  int previous = -1;
  for (const uint8_t dim : tensor.dim_order()) {
    if (tensor.size(dim) == 1) continue;
    if (dim < previous) return false;
    previous = dim;
  }
  return true;
}

bool has_dim_order(const Tensor& tensor, const Dims& order) {
  const auto found = tensor.dim_order();
  return found.size() == order.size() &&
         std::equal(order.begin(), order.end(), found.begin(),
                    [](int64_t a, uint8_t b) { return a == static_cast<int64_t>(b); });
}

std::string expected_text(const TensorSpec& expected) {
  std::string low = shape_text(expected.min_shape.data(), expected.min_shape.size());
  if (!expected.dynamic) return low;
  return low + " to " + shape_text(expected.max_shape.data(), expected.max_shape.size());
}

}  // namespace

Status TensorSpec::create(const Binding& binding, const trt_et_binding& described,
                          TensorSpec* spec) {
  spec->name = binding.name;
  spec->value_of = binding.value_of;
  spec->is_input = binding.is_input;
  spec->dim_order = binding.dim_order;
  if (binding.dtype.empty()) {
    if (described.dtype < 0) {
      return fail(Error::InvalidProgram, "neither blob nor engine gives the dtype of '%.60s'",
                  binding.name.c_str());
    }
    spec->dtype = static_cast<ScalarType>(described.dtype);
    spec->take_shape_of(described);
    if (spec->any_shape) return {};
  } else {
    spec->dtype = *dtype_from_name(binding.dtype);
    spec->dynamic = binding.is_dynamic();
    spec->min_shape = spec->dynamic ? binding.min_shape : binding.shape;
    spec->max_shape = spec->dynamic ? binding.max_shape : binding.shape;
  }
  const bool fits = std::all_of(spec->max_shape.begin(), spec->max_shape.end(),
                                [](int64_t size) { return size <= INT32_MAX; });
  if (!fits ||
      !dense_bytes(spec->dtype, spec->max_shape.data(), spec->max_shape.size(), &spec->max_bytes)) {
    return fail(Error::InvalidProgram, "binding '%.60s' is larger than any memory: %s",
                binding.name.c_str(), expected_text(*spec).c_str());
  }
  return {};
}

// Of an output, the engine knows dynamic dimensions only when it has its inputs.
void TensorSpec::take_shape_of(const trt_et_binding& described) {
  any_shape = described.rank < 0;
  for (int32_t i = 0; i < described.rank; ++i) {
    dynamic = dynamic || described.dims[i] < 0;
    any_shape = any_shape || described.min_dims[i] < 0 || described.max_dims[i] < 0;
  }
  if (any_shape) return;
  min_shape.assign(described.min_dims, described.min_dims + described.rank);
  max_shape.assign(described.max_dims, described.max_dims + described.rank);
}

Status check_tensor(const TensorSpec& expected, EValue* value, size_t index, Tensor** tensor) {
  if (value == nullptr || !value->isTensor()) {
    return fail(Error::InvalidArgument, "argument %zu (%s '%.60s') is not a tensor", index,
                direction(expected), expected.name.c_str());
  }
  Tensor& found = value->toTensor();
  if (found.scalar_type() != expected.dtype) {
    return fail(Error::InvalidArgument, "%s '%.60s' has dtype %s, expected %s", direction(expected),
                expected.name.c_str(), dtype_name(found.scalar_type()), dtype_name(expected.dtype));
  }
  if (found.dim() > TRT_ET_MAX_RANK ||
      (!expected.any_shape && static_cast<size_t>(found.dim()) != expected.min_shape.size() &&
       !(found.dim() == 0 && expected.is_one()))) {
    return fail(Error::InvalidArgument, "%s '%.60s' has rank %zd, expected %s", direction(expected),
                expected.name.c_str(), found.dim(), expected_text(expected).c_str());
  }
  const bool layout =
      expected.dim_order ? has_dim_order(found, *expected.dim_order) : is_contiguous(found);
  if (!layout) {
    return fail(Error::InvalidArgument, "%s '%.60s' has another memory layout than the expected %s",
                direction(expected), expected.name.c_str(),
                expected.dim_order ? ("dim order " + shape_text(expected.dim_order->data(),
                                                                expected.dim_order->size()))
                                         .c_str()
                                   : "contiguous one");
  }
  *tensor = &found;
  return {};
}

Status check_shape(const TensorSpec& expected, const Tensor& tensor, MemoryShape* shape) {
  if (tensor.dim() == 0 && !expected.any_shape && expected.is_one()) {
    *shape = MemoryShape{{1}, 1};
    return {};
  }
  shape->rank = static_cast<int32_t>(tensor.dim());
  const auto order = tensor.dim_order();
  bool fits = true;
  for (int32_t i = 0; i < shape->rank; ++i) {
    // Without a recorded dim order the dimensions keep their order: only those of size 1 differ.
    const size_t dim = expected.dim_order ? order[i] : static_cast<size_t>(i);
    shape->dims[i] = tensor.size(static_cast<ssize_t>(dim));
    if (!expected.any_shape) {
      fits = fits && shape->dims[i] >= expected.min_shape[i] &&
             shape->dims[i] <= expected.max_shape[i];
    }
  }
  if (fits) return {};
  const bool empty = std::count(shape->dims, shape->dims + shape->rank, 0) > 0;
  return fail(
      Error::InvalidArgument, "%s '%.50s' has shape %s, expected %s%s", direction(expected),
      expected.name.c_str(), shape_text(shape->dims, shape->rank).c_str(),
      expected_text(expected).c_str(),
      empty ? "; the sizes of an engine begin at 1: do not call it with an empty tensor" : "");
}

Status resize_output(const TensorSpec& expected, const MemoryShape& shape, Tensor& tensor) {
  const auto rank = static_cast<size_t>(tensor.dim());
  int32_t sizes[TRT_ET_MAX_RANK] = {};
  // A 0-d output may be [1] to the engine.
  const bool scalar = rank == 0 && shape.rank == 1 && shape.dims[0] == 1;
  bool fits = scalar || static_cast<size_t>(shape.rank) == rank;
  for (size_t i = 0; fits && !scalar && i < rank; ++i) {
    fits = shape.dims[i] >= 0 && shape.dims[i] <= INT32_MAX;
    const size_t dim = expected.dim_order ? static_cast<size_t>((*expected.dim_order)[i]) : i;
    sizes[dim] = static_cast<int32_t>(shape.dims[i]);
  }
  if (fits && executorch::runtime::resize_tensor(
                  tensor, executorch::runtime::ArrayRef<int32_t>(sizes, rank)) == Error::Ok) {
    return {};
  }
  return fail(Error::InvalidArgument, "output '%.50s' has no room for shape %s (it has %zu bytes)",
              expected.name.c_str(), shape_text(shape.dims, shape.rank).c_str(), tensor.nbytes());
}

}  // namespace trt_et
