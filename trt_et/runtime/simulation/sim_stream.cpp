#include "sim_stream.h"

#include <chrono>

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

}  // namespace trt_et::cuda
