#include "shared_memory.h"

#include <utility>

#include "common/immortal.h"
#include "common/shared_objects.h"

namespace trt_et {

std::shared_ptr<Scratch> Scratch::of(const void* owner, cuda::Api& api, int device) {
  using ByOwner = SharedObjects<std::pair<const void*, int>, Scratch>;
  return immortal<ByOwner>().find({owner, device}, std::make_shared<Scratch>(api, device));
}

Scratch::~Scratch() {
  if (used_ == nullptr) return;
  // Its users have waited for their work before they went.
  (void)report(api_.destroy_event(used_));
}

Status Scratch::reserve(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (used_ == nullptr) TRT_ET_TRY(api_.create_event(&used_));
  if (buffer_.fits(bytes)) return {};
  if (in_use_) TRT_ET_TRY(api_.synchronize_event(used_));
  return buffer_.reserve(api_, device_, bytes);
}

Status Scratch::use(const WorkStream& stream,
                    const std::function<Status(const DeviceBuffer&)>& queue) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const WorkStream last = std::exchange(last_stream_, stream);
  const bool used = std::exchange(in_use_, true);
  if (used && !last.is(stream)) TRT_ET_TRY(api_.wait_event(stream.handle, used_));
  TRT_ET_TRY(queue(buffer_));
  return api_.record_event(used_, stream.handle);
}

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
