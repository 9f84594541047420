#include "warm_up.h"

#include <algorithm>

#include "common/log.h"
#include "cuda/streams.h"

namespace trt_et {
namespace {

enum class Size { smallest, typical, largest };

bool set_shapes(const Blob& blob, Size size, std::vector<Argument>& arguments) {
  for (Argument& argument : arguments) {
    const TensorSpec& expected = argument.expected;
    if (!expected.is_input) continue;
    if (expected.any_shape) return false;
    const Dims& typical = blob.metadata.bindings[argument.binding].opt_shape;
    if (size == Size::typical && expected.dynamic && typical.empty()) return false;
    const Dims& dims = size == Size::smallest || !expected.dynamic ? expected.min_shape
                       : size == Size::typical                     ? typical
                                                                   : expected.max_shape;
    argument.call.shape.rank = static_cast<int32_t>(dims.size());
    std::copy(dims.begin(), dims.end(), argument.call.shape.dims);
  }
  return true;
}

Status run(cuda::Api& api, int device, std::vector<Argument>& arguments, Contexts& contexts) {
  WorkStream stream;
  TRT_ET_TRY(thread_stream(api, device, &stream));
  TRT_ET_TRY(contexts.choose(stream.handle, false));
  std::vector<DeviceBuffer> buffers(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    Argument& argument = arguments[i];
    const MemoryShape& shape = argument.call.shape;
    size_t bytes = 0;
    if (argument.alias_of >= 0) {
      argument.call.memory = arguments[static_cast<size_t>(argument.alias_of)].call.memory;
      continue;
    }
    if (!dense_bytes(argument.expected.dtype, shape.dims, static_cast<size_t>(shape.rank),
                     &bytes)) {
      return fail(Error::InvalidProgram, "'%.60s' is larger than any memory",
                  argument.expected.name.c_str());
    }
    TRT_ET_TRY(buffers[i].reserve(api, device, bytes));
    TRT_ET_TRY(api.zero(buffers[i].data(), buffers[i].size(), stream.handle));
    argument.call.memory = {buffers[i].data(), buffers[i].size()};
  }
  Status status = contexts.set_addresses();
  if (status.ok()) status = contexts.run(stream);
  Status drained = api.synchronize_stream(stream.handle);
  return status.ok() ? std::move(drained) : std::move(status);
}

}  // namespace

void warm_up(cuda::Api& api, int device, const Blob& blob, std::vector<Argument>& arguments,
             Contexts& contexts) {
  const bool dynamic = std::any_of(arguments.begin(), arguments.end(), [](const Argument& one) {
    return one.expected.is_input && one.expected.dynamic;
  });
  for (const Size size : {Size::typical, Size::smallest, Size::largest}) {
    if (!set_shapes(blob, size, arguments)) continue;
    const Status status = run(api, device, arguments, contexts);
    if (!status.ok()) {
      log(LogLevel::info, "TensorRTBackend: warm_up_at_load: %s", status.text.c_str());
    }
    for (Argument& argument : arguments) argument.call = {};
    contexts.forget();
    if (!dynamic) break;
  }
}

}  // namespace trt_et
