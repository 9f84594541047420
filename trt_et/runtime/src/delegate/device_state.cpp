#include "device_state.h"

#include <utility>

#include "common/immortal.h"
#include "common/shared_objects.h"
#include "cuda/streams.h"

namespace trt_et {
Status DeviceState::of(const void* host, cuda::Api& api, int device, size_t bytes,
                       std::shared_ptr<DeviceState>* state) {
  auto& states = immortal<SharedObjects<const void*, DeviceState>>();
  *state = states.find(host, nullptr);
  if (*state == nullptr) {
    // No call to CUDA is made under the lock. Another thread may be faster; its memory counts then.
    auto made = std::make_shared<DeviceState>();
    WorkStream stream;
    TRT_ET_TRY(made->buffer_.reserve(api, device, bytes));
    TRT_ET_TRY(thread_stream(api, device, &stream));
    TRT_ET_TRY(api.zero(made->data(), bytes, stream.handle));
    TRT_ET_TRY(api.synchronize_stream(stream.handle));
    *state = states.find(host, std::move(made));
  }
  const DeviceBuffer& found = (*state)->buffer_;
  if (found.device() == device && found.size() == bytes) return {};
  return fail(Error::InvalidState,
              "shared state of %zu bytes on cuda:%d is %zu bytes on cuda:%d in another method",
              bytes, device, found.size(), found.device());
}

}  // namespace trt_et
