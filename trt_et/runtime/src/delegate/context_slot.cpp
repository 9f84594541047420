#include "context_slot.h"

#include <algorithm>

#include "delegate.h"

namespace trt_et {
namespace {

constexpr uint64_t kEnoughLaunches = 16;
constexpr uint32_t kMaxNeeded = 1 << 16;

void mix(uint64_t& key, uint64_t value) {
  key = (key ^ value) * 0x9E3779B97F4A7C15u;
  key ^= key >> 29;
}

}  // namespace

bool CallHistory::is_frequent(uint64_t key) {
  Entry* found = &entries_[0];
  for (Entry& entry : entries_) {
    if (entry.count > 0 && entry.key == key) {
      found = &entry;
      break;
    }
    if (entry.last < found->last) found = &entry;
  }
  if (found->key != key) *found = {key, 0, 0};
  found->last = ++clock_;
  found->count = std::min(found->count + 1, kMaxNeeded);
  return found->count >= needed_;
}

void CallHistory::dropped(uint64_t launches) {
  entries_ = {};
  if (launches < kEnoughLaunches) needed_ = std::min(needed_ * 2, kMaxNeeded);
}

bool Delegate::has_shapes(const ContextSlot& slot) const {
  for (size_t i = 0; i < input_count_; ++i) {
    if (slot.bound[i].shape != arguments_[i].shape) return false;
  }
  return slot.prepared && !slot.late;
}

bool Delegate::has_addresses(const ContextSlot& slot) const {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& argument = arguments_[i];
    if (!(slot.bound[i].memory == argument.memory() && slot.bound[i].copied == argument.copied)) {
      return false;
    }
  }
  return true;
}

void Delegate::use_slot(ContextSlot& slot) {
  slot_ = &slot;
  slot.last_use = ++clock_;
  for (size_t i = input_count_; i < arguments_.size(); ++i) {
    arguments_[i].shape = slot.bound[i].shape;
    arguments_[i].late = slot.bound[i].late;
  }
}

// A context for a call that none is set up for: one whose calls do not come back, or a new one, or
// that which has not been used for the longest time.
Status Delegate::replace_slot() {
  const auto free =
      std::find_if(slots_.begin(), slots_.end(), [](const auto& slot) { return !slot->kept; });
  if (free != slots_.end()) {
    slot_ = free->get();
  } else if (slots_.size() < max_slots_ && add_slot().ok()) {
    slot_ = slots_.back().get();
  } else {
    max_slots_ = slots_.size();
    slot_ = std::min_element(slots_.begin(), slots_.end(), [](const auto& a, const auto& b) {
              return a->last_use < b->last_use;
            })->get();
    history_.dropped(slot_->replay.launches());
    TRT_ET_TRY(wait_and_rebind());
  }
  slot_->kept = false;
  slot_->last_use = ++clock_;
  return {};
}

Status Delegate::add_slot() {
  auto slot = std::make_unique<ContextSlot>(api_, graphs_, arguments_.size(),
                                            [this](cuda::Stream stream) { return queue(stream); });
  const uint32_t flags = (scratch_ != nullptr ? TRT_ET_CONTEXT_USER_MEMORY : 0) |
                         (graphs_ ? TRT_ET_CONTEXT_GRAPHS : 0);
  TRT_ET_TRY(Context::create(*engine_, flags, &slot->context));
  slots_.push_back(std::move(slot));
  return {};
}

// Before the addresses are known: an engine says the shapes of its outputs when it has those of its
// inputs.
Status Delegate::choose_by_shapes(cuda::Stream stream) {
  if (has_shapes(*slot_)) return {};
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [this](const auto& slot) { return has_shapes(*slot); });
  if (found != slots_.end()) {
    use_slot(**found);
    return {};
  }
  if (slot_->kept) TRT_ET_TRY(replace_slot());
  return prepare(stream);
}

Status Delegate::choose_by_addresses(cuda::Stream stream) {
  if (slot_->late || !graphs_) return {};
  if (has_addresses(*slot_) && slot_->kept) {
    slot_->last_use = ++clock_;
    return {};
  }
  const auto found = std::find_if(slots_.begin(), slots_.end(), [this](const auto& slot) {
    return has_shapes(*slot) && has_addresses(*slot);
  });
  if (found != slots_.end() && found->get() != slot_) use_slot(**found);
  if (found == slots_.end() && slot_->kept) {
    TRT_ET_TRY(replace_slot());
    if (!has_shapes(*slot_)) TRT_ET_TRY(prepare(stream));
  }
  if (!slot_->kept) slot_->kept = history_.is_frequent(call_key());
  return {};
}

uint64_t Delegate::call_key() const {
  uint64_t key = 1;
  for (const Argument& argument : arguments_) {
    for (int32_t i = 0; i < argument.shape.rank; ++i) {
      mix(key, static_cast<uint64_t>(argument.shape.dims[i]));
    }
    mix(key, reinterpret_cast<uintptr_t>(argument.address));
    mix(key, reinterpret_cast<uintptr_t>(argument.copied.data));
    mix(key, argument.copied.bytes);
  }
  return key;
}

}  // namespace trt_et
