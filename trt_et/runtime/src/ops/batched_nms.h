// trt_et::batched_nms.out, a CPU kernel that a program finds as it finds ExecuTorch's own.
#pragma once

#include <executorch/runtime/kernel/operator_registry.h>

namespace trt_et {

inline constexpr const char* kBatchedNms = "trt_et::batched_nms.out";

// Arguments: boxes [batch, n, 4], scores [batch, n, classes], the threshold of the intersection
// over union, the threshold of scores, the most results; out: boxes, scores, classes, count.
void batched_nms_out(executorch::runtime::KernelRuntimeContext& context,
                     executorch::runtime::Span<executorch::runtime::EValue*> arguments);

// Registers the kernel, unless another copy of this library has.
void register_batched_nms();

}  // namespace trt_et
