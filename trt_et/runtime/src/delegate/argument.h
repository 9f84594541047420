// What one argument of a delegate must be, the checks of a tensor against it, and where it is.
#pragma once

#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>

#include <algorithm>
#include <string>

#include "blob/blob.h"
#include "common/dtype.h"
#include "common/engine_provider.h"
#include "cuda/cuda_api.h"
#include "cuda/device_buffer.h"
#include "shared_memory.h"

namespace trt_et {

using executorch::runtime::EValue;
using executorch::runtime::etensor::Tensor;

// The shape of an argument's memory: contiguous, whatever the tensor's dim order is.
struct MemoryShape {
  int64_t dims[TRT_ET_MAX_RANK] = {};
  int32_t rank = 0;

  bool operator==(const MemoryShape& other) const {
    return rank == other.rank && std::equal(dims, dims + rank, other.dims);
  }
  bool operator!=(const MemoryShape& other) const { return !(*this == other); }
};

// The expectation of one argument, from the blob and, where that is silent, from the engine.
struct TensorSpec {
  std::string name;
  std::string value_of;  // see Binding
  bool is_input = false;
  ScalarType dtype = ScalarType::Float;
  Dims min_shape;
  Dims max_shape;
  std::optional<Dims> dim_order;
  bool dynamic = false;
  bool any_shape = false;  // neither the blob nor the engine says more
  // The engine has [1] where the program has a tensor without dimensions.
  bool is_one() const { return min_shape.size() == 1 && max_shape[0] == 1; }
  size_t max_bytes = 0;  // 0 where the shape is not known beforehand

  static Status create(const Binding& binding, const trt_et_binding& described, TensorSpec* spec);

 private:
  void take_shape_of(const trt_et_binding& described);
};

// A tensor's memory; null: none.
struct Memory {
  void* data = nullptr;
  size_t bytes = 0;

  bool operator==(const Memory& other) const { return data == other.data && bytes == other.bytes; }
};

// An argument of a delegate.
struct Argument {
  // From the load on.
  TensorSpec expected;
  size_t binding = 0;    // index in the blob's list
  int alias_of = -1;     // argument whose memory an aliased output takes
  DeviceBuffer staging;  // for memory that the engine cannot reach

  // Of one call.
  struct Call {
    Tensor* tensor = nullptr;
    MemoryShape shape;  // as the engine has it
    bool late = false;  // the shape is known only after the run
    cuda::PointerInfo where;
    Memory memory;  // what the engine is given
    // Memory of the engine's device that is copied to or from `memory`.
    Memory copied;

    Memory own() const { return {tensor->mutable_data_ptr(), tensor->nbytes()}; }
  };
  Call call;

  // Of the calls before.
  struct Past {
    const void* pageable = nullptr;  // the tensor's memory when CUDA last called it pageable
    // Of shared state: the tensor's memory on the host, and the state.
    void* host = nullptr;
    std::shared_ptr<DeviceState> state;
  };
  Past past;
};

// Finds the tensor in a delegate's argument, and checks its dtype, rank and dim order.
Status check_tensor(const TensorSpec& expected, EValue* value, size_t index, Tensor** tensor);

// Checks an input's shape, and gives that of its memory.
Status check_shape(const TensorSpec& expected, const Tensor& tensor, MemoryShape* shape);

// Gives an output the shape of the memory that the engine wrote.
Status resize_output(const TensorSpec& expected, const MemoryShape& shape, Tensor& tensor);

}  // namespace trt_et
