#include "device_state.h"

#include <map>
#include <mutex>

#include "cuda/streams.h"

namespace trt_et {
namespace {

struct States {
  std::mutex mutex;
  std::map<const void*, std::weak_ptr<DeviceState>> by_address;
};

States& states() {
  static auto* instance = new States;
  return *instance;
}

// The state at `host`, which becomes `made` where there is none and something was made.
std::shared_ptr<DeviceState> find(const void* host, std::shared_ptr<DeviceState> made) {
  States& known = states();
  const std::lock_guard<std::mutex> lock(known.mutex);
  for (auto it = known.by_address.begin(); it != known.by_address.end();) {
    it = it->second.expired() ? known.by_address.erase(it) : std::next(it);
  }
  const auto found = known.by_address.find(host);
  std::shared_ptr<DeviceState> state =
      found == known.by_address.end() ? nullptr : found->second.lock();
  if (state == nullptr && made != nullptr) known.by_address[host] = state = std::move(made);
  return state;
}

}  // namespace

Status DeviceState::of(const void* host, cuda::Api& api, int device, size_t bytes,
                       std::shared_ptr<DeviceState>* state) {
  *state = find(host, nullptr);
  if (*state == nullptr) {
    // No call to CUDA is made under the lock. Another thread may be faster; its memory counts then.
    auto made = std::make_shared<DeviceState>();
    TRT_ET_TRY(made->create(api, device, bytes));
    *state = find(host, std::move(made));
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
