#include "device_state.h"

#include <utility>

#include "common/immortal.h"
#include "cuda/streams.h"
#include "shared_objects.h"

namespace trt_et {
Status DeviceState::of(const void* host, cuda::Api& api, int device, size_t bytes,
                       std::shared_ptr<DeviceState>* state) {
  auto& states = immortal<SharedObjects<const void*, DeviceState>>();
  *state = states.find(host, nullptr);
  if (*state == nullptr) {
    // No call to CUDA is made under the lock. Another thread may be faster; its memory counts then.
    auto made = std::make_shared<DeviceState>();
    TRT_ET_TRY(made->create(api, device, bytes));
    *state = states.find(host, std::move(made));
  }
  if ((*state)->device_ == device && (*state)->bytes_ == bytes) return {};
  return fail(Error::InvalidState,
              "shared state of %zu bytes on cuda:%d is %zu bytes on cuda:%d in another method",
              bytes, device, (*state)->bytes_, (*state)->device_);
}

Status DeviceState::create(cuda::Api& api, int device, size_t bytes) {
  device_ = device;
  bytes_ = bytes;
  TRT_ET_TRY(buffer_.reserve(api, device, bytes));
  WorkStream stream;
  TRT_ET_TRY(thread_stream(api, device, &stream));
  TRT_ET_TRY(api.zero(data(), bytes, stream.handle));
  return api.synchronize_stream(stream.handle);
}

}  // namespace trt_et
