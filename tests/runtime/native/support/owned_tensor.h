// Tensors for tests, with memory of their own choice.
#pragma once

#include <executorch/runtime/core/evalue.h>

#include <memory>
#include <vector>

#include "common/dtype.h"

namespace trt_et {

struct OwnedTensor {
  using Tensor = executorch::runtime::etensor::Tensor;
  using TensorImpl = executorch::runtime::etensor::TensorImpl;

  OwnedTensor(std::vector<int32_t> shape, void* data, ScalarType dtype = ScalarType::Float)
      : sizes(std::move(shape)), order(sizes.size()), strides(sizes.size()) {
    int32_t stride = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      order[i] = static_cast<uint8_t>(i);
      strides[i] = stride;
      stride *= sizes[i] == 0 ? 1 : sizes[i];
    }
    impl = std::make_unique<TensorImpl>(dtype, static_cast<ssize_t>(sizes.size()), sizes.data(),
                                        data, order.data(), strides.data(),
                                        executorch::runtime::TensorShapeDynamism::DYNAMIC_BOUND);
    value = executorch::runtime::EValue(Tensor(impl.get()));
  }

  std::vector<int32_t> sizes;
  std::vector<uint8_t> order;
  std::vector<int32_t> strides;
  std::unique_ptr<TensorImpl> impl;
  executorch::runtime::EValue value;
};

}  // namespace trt_et
