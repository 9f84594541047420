#include "sim_streams.h"

#include <algorithm>
#include <chrono>
#include <climits>

namespace trt_et::cuda {

void SimStream::enqueue(std::function<Status()> work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (recorded_.has_value()) {
    recorded_->push_back(std::move(work));
    return;
  }
  queue_.push_back(std::move(work));
  ++enqueued_;
}

void SimStream::follow(const std::shared_ptr<SimStream>& other, uint64_t position) {
  if (position == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t& followed = followed_[other->number_];
  if (recorded_.has_value() || position <= followed) return;
  followed = position;
  queue_.push_back([other, position] { return other->run_until(position); });
  ++enqueued_;
}

Status SimStream::begin_capture() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (recorded_.has_value()) return {Error::InvalidState, "the stream is captured already"};
  recorded_.emplace();
  broken_ = false;
  return {};
}

Status SimStream::end_capture(SimWork* work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!recorded_.has_value()) return {Error::InvalidState, "the stream is not captured"};
  *work = std::move(*recorded_);
  recorded_.reset();
  if (broken_) return {Error::InvalidState, "something that cannot be captured was done meanwhile"};
  return {};
}

bool SimStream::captured() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return recorded_.has_value();
}

bool SimStream::breaks_capture() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (recorded_.has_value()) broken_ = true;
  return recorded_.has_value();
}

bool SimStream::idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return completed_ == enqueued_;
}

SimMark SimStream::mark() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return SimMark{shared_from_this(), enqueued_, recorded_.has_value()};
}

// Runs the front item with the lock released: it may run other streams (a wait for an event), and
// other threads may queue more meanwhile.
Status SimStream::run_one(std::unique_lock<std::mutex>& lock) {
  std::function<Status()> work = std::move(queue_.front());
  queue_.pop_front();
  running_ = true;
  runner_ = std::this_thread::get_id();
  const bool drop = !failure_.ok();
  lock.unlock();
  Status status = drop ? Status{} : work();
  work = nullptr;  // What it holds goes before anybody learns that it is done.
  lock.lock();
  running_ = false;
  ++completed_;
  if (!status.ok() && failure_.ok()) failure_ = std::move(status);
  progress_.notify_all();
  return failure_;
}

Status SimStream::run_until(uint64_t position) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (completed_ < position) {
    if (!running_) {
      (void)run_one(lock);
    } else if (runner_ == std::this_thread::get_id()) {
      return {Error::InvalidState, "a host function of a stream waits for the stream itself"};
    } else {
      // Without a limit it would be a function that only GCC 12's libstdc++ and later ones have.
      (void)progress_.wait_for(lock, std::chrono::seconds(1));
    }
  }
  return failure_;
}

Status SimStream::synchronize() {
  Status status = run_until(mark().position);
  if (!status.ok()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = Status{};
  }
  return status;
}

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
