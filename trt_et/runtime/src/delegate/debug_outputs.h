// Results of the calls inside an engine, which an engine built with the option debug_outputs writes
// as further outputs. They have tensors here, since the program has none for them.
#pragma once

#include <executorch/runtime/core/span.h>

#include <memory>
#include <vector>

#include "argument.h"

namespace trt_et {

// Used under the lock of its delegate.
class DebugOutputs {
 public:
  Status create(const std::vector<Argument>& arguments);

  // The arguments of a call, and the tensors after them.
  executorch::runtime::Span<EValue*> append_to(executorch::runtime::Span<EValue*> values);

  // Logs the results of the call that is over, where the event tracer takes values.
  void log() const;

 private:
  struct Result;

  std::vector<std::shared_ptr<Result>> results_;
  std::vector<EValue*> values_;
  size_t program_outputs_ = 0;
};

}  // namespace trt_et
