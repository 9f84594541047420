#include "sim_streams.h"

#include <algorithm>
#include <climits>

namespace trt_et::cuda {

SimStreams::SimStreams(int devices) {
  for (int device = 0; device < devices; ++device) {
    legacy_.push_back(std::make_shared<SimStream>(device, SimStream::Kind::legacy));
  }
}

Stream SimStreams::add(int device, StreamKind kind) {
  auto created = std::make_shared<SimStream>(device, kind == StreamKind::blocking
                                                         ? SimStream::Kind::blocking
                                                         : SimStream::Kind::non_blocking);
  const std::unique_lock<std::shared_mutex> lock(lock_);
  if (free_handles_.empty()) {
    handles_.push_back(std::make_unique<char>());
    free_handles_.push_back(handles_.back().get());
  }
  const Stream handle = free_handles_.back();
  free_handles_.pop_back();
  by_handle_[handle] = std::move(created);
  return handle;
}

// One for each thread and device.
SimStreamPtr SimStreams::per_thread(int device) {
  thread_local std::unordered_map<int, SimStreamPtr> own;
  SimStreamPtr& stream = own[device];
  if (stream == nullptr) {
    stream = std::make_shared<SimStream>(device, SimStream::Kind::blocking);
    const std::unique_lock<std::shared_mutex> lock(lock_);
    forget_idle(per_thread_, /*owners=*/1);  // Of threads that have ended.
    per_thread_.push_back(stream);
  }
  return stream;
}

// Of streams that have as few owners and no work left, there is nothing to wait for.
void SimStreams::forget_idle(std::vector<SimStreamPtr>& streams, long owners) {
  streams.erase(std::remove_if(streams.begin(), streams.end(),
                               [owners](const SimStreamPtr& stream) {
                                 return stream.use_count() <= owners && stream->idle();
                               }),
                streams.end());
}

Status SimStreams::find(Stream stream, int current_device, SimStreamPtr* out) {
  if (stream == nullptr || stream == kLegacyStream) {
    *out = legacy_[static_cast<size_t>(current_device)];
    return {};
  }
  if (stream == kPerThreadStream) {
    *out = per_thread(current_device);
    return {};
  }
  const std::shared_lock<std::shared_mutex> lock(lock_);
  const auto found = by_handle_.find(stream);
  if (found == by_handle_.end()) return {Error::InvalidArgument, "not a stream of a simulated GPU"};
  *out = found->second;
  return {};
}

Status SimStreams::remove(Stream stream) {
  const std::unique_lock<std::shared_mutex> lock(lock_);
  const auto found = by_handle_.find(stream);
  if (found == by_handle_.end()) return {Error::InvalidArgument, "not a stream of a simulated GPU"};
  forget_idle(removed_, /*owners=*/LONG_MAX);
  removed_.push_back(std::move(found->second));
  by_handle_.erase(found);
  free_handles_.push_back(stream);
  return {};
}

size_t SimStreams::live() {
  const std::shared_lock<std::shared_mutex> lock(lock_);
  return by_handle_.size();
}

size_t SimStreams::kept() {
  const std::shared_lock<std::shared_mutex> lock(lock_);
  return removed_.size() + per_thread_.size();
}

std::vector<SimStreamPtr> SimStreams::blocking(int device) {
  std::vector<SimStreamPtr> found;
  const auto take = [&](const SimStreamPtr& stream) {
    if (stream->device() == device && stream->kind() == SimStream::Kind::blocking) {
      found.push_back(stream);
    }
  };
  const std::shared_lock<std::shared_mutex> lock(lock_);
  for (const auto& [handle, stream] : by_handle_) take(stream);
  for (const SimStreamPtr& stream : per_thread_) take(stream);
  for (const SimStreamPtr& stream : removed_) take(stream);
  return found;
}

void SimStreams::join(SimStream& stream) {
  if (stream.kind() == SimStream::Kind::non_blocking) return;
  const SimStreamPtr& legacy = legacy_[static_cast<size_t>(stream.device())];
  if (stream.kind() == SimStream::Kind::blocking) {
    stream.follow(legacy, legacy->position());
    return;
  }
  for (const SimStreamPtr& other : blocking(stream.device())) {
    stream.follow(other, other->position());
  }
}

void SimStreams::enqueue(SimStream& stream, std::function<Status()> work) {
  join(stream);
  stream.enqueue(std::move(work));
}

void SimStreams::run_all(int device) {
  std::vector<SimStreamPtr> all = blocking(device);
  all.push_back(legacy_[static_cast<size_t>(device)]);
  {
    const std::unique_lock<std::shared_mutex> lock(lock_);
    for (const auto& [handle, stream] : by_handle_) {
      if (stream->device() == device) all.push_back(stream);
    }
    const auto mine =
        std::partition(removed_.begin(), removed_.end(),
                       [device](const SimStreamPtr& stream) { return stream->device() != device; });
    all.insert(all.end(), mine, removed_.end());
    removed_.erase(mine, removed_.end());
  }
  for (const SimStreamPtr& stream : all) (void)stream->run_until(stream->position());
}

}  // namespace trt_et::cuda
