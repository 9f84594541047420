#include "contexts.h"

#include <algorithm>

#include "common/log.h"

namespace trt_et {
namespace {

constexpr uint32_t kOften = 3;
// A tensor that has moved so often is copied from then on, and one that has stayed so often is not.
constexpr uint32_t kMoves = 3;
constexpr uint32_t kStays = 32;
// What a copy on the GPU moves in about the time that a graph saves.
constexpr size_t kMaxCopied = size_t{16} << 20;
// A graph that was launched less often was not worth its capture: the next one has to be earned by
// twice as many runs.
constexpr uint64_t kEnoughLaunches = 16;
constexpr uint32_t kMaxNeeded = 1 << 16;
// A context that was not used for so many calls is given to other shapes.
constexpr uint64_t kIdleCalls = 16;
// Contexts for graphs of the caller's, of which nobody says when they go.
constexpr std::ptrdiff_t kMaxCaptured = 64;
// Another context is made only where this many times its memory is free.
constexpr size_t kFreeShare = 4;

bool set_typical_shapes(const Blob& blob, std::vector<Argument>& arguments) {
  for (Argument& argument : arguments) {
    const TensorSpec& expected = argument.expected;
    if (!expected.is_input) continue;
    const Dims& dims =
        expected.dynamic ? blob.metadata.bindings[argument.binding].opt_shape : expected.min_shape;
    if (expected.any_shape || (expected.dynamic && dims.empty())) return false;
    argument.call.shape.rank = static_cast<int32_t>(dims.size());
    std::copy(dims.begin(), dims.end(), argument.call.shape.dims);
  }
  return true;
}

}  // namespace

void GraphReplay::drop() {
  warm_ = false;
  launches_ = 0;
  if (graph_ == nullptr) return;
  (void)report(api_.destroy_graph(graph_));
  graph_ = nullptr;
}

// On a stream that nobody else knows and that no default stream waits for: other threads may use
// the legacy stream, free memory and wait for their streams meanwhile, and the caller's stream may
// be of any kind.
Status GraphReplay::capture() {
  const TraceScope untraced(nullptr);  // Nothing runs here.
  cuda::Stream stream = nullptr;
  TRT_ET_TRY(api_.create_stream(cuda::StreamKind::non_blocking, &stream));
  Status status = capture_on(stream);
  Status destroyed = api_.destroy_stream(stream);
  return status.ok() ? std::move(destroyed) : std::move(status);
}

// Once begun, a capture is ended whatever happens.
Status GraphReplay::capture_on(cuda::Stream stream) {
  TRT_ET_TRY(check_(stream));
  TRT_ET_TRY(api_.begin_capture(stream));
  Status queued = queue_(stream);
  cuda::Graph graph = nullptr;
  Status ended = api_.end_capture(stream, &graph);
  if (queued.ok() && ended.ok()) {
    graph_ = graph;
    return {};
  }
  if (graph != nullptr) (void)api_.destroy_graph(graph);
  return queued.ok() ? std::move(ended) : std::move(queued);
}

Status GraphReplay::run(cuda::Stream stream, bool capture) {
  if (enabled_ && graph_ == nullptr && capture && warm_) {
    const TraceEvent event("capture graph");
    const Status captured = this->capture();
    if (!captured.ok()) {
      enabled_ = false;
      refusal_ = captured.text;
      log(LogLevel::debug, "TensorRTBackend: no CUDA graph for this engine, it runs plainly: %s",
          captured.text.c_str());
    }
  }
  if (graph_ != nullptr) {
    const TraceEvent event("launch graph");
    ++launches_;
    return api_.launch_graph(graph_, stream);
  }
  TRT_ET_TRY(queue_(stream));
  warm_ = true;
  return {};
}

void ContextSlot::forget() {
  replay.drop();
  prepared = kept = false;
  settled = 0;
  for (Bound& one : bound) one.memory = {};
}

void ContextSlot::see(Bound& one, const Memory& memory) const {
  const bool first = one.seen == nullptr;
  if (fixed) return;
  if (memory.data == one.seen) {
    if (one.stays < kStays && ++one.stays == kStays) {
      one.moves = 0;
      one.moving = false;
    }
    return;
  }
  one.seen = memory.data;
  one.stays = 0;
  if (first || one.moves >= kMoves) return;
  one.moving = ++one.moves == kMoves && memory.bytes <= kMaxCopied && replay.enabled();
}

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
  found->count = std::min(found->count + 1, kOften);
  return found->count == kOften;
}

// With memory of its own, or of the method's.
Status Contexts::create(const Engine& engine, const LoadOptions& options) {
  const trt_et_engine_provider& provider = engine.provider();
  engine_ = &engine;
  profile_ = options.optimization_profile;
  if (!options.cuda_graphs) no_graph_ = "option cuda_graphs is off";
  if (options.profile_layers) no_graph_ = "option profile_layers is on";
  if ((provider.flags & TRT_ET_PROVIDER_GRAPHS) == 0) no_graph_ = "the provider takes none";
  graphs_ = no_graph_.empty();
  cuda::DeviceInfo gpu;
  TRT_ET_TRY(api_.device_info(device_, &gpu));
  max_count_ = options.execution_contexts.value_or(gpu.integrated ? 1 : 2);
  const bool can_share = provider.memory_size != nullptr && provider.set_memory != nullptr;
  if (options.shared_device_memory && can_share) {
    size_t bytes = 0;
    TRT_ET_TRY(engine.memory_size(&bytes));
    scratch_ = Scratch::of(options.method, api_, device_);
    TRT_ET_TRY(scratch_->reserve(bytes));
  }
  TRT_ET_TRY(add());
  slot_ = slots_.back().get();
  return options.profile_layers ? profile_layers() : Status{};
}

Status Contexts::profile_layers() {
  if (slot_->context->can_profile_layers()) {
    profiles_layers_ = true;
    return slot_->context->profile_layers(LayerEvents::report, &layers_);
  }
  log(LogLevel::info,
      "TensorRTBackend: profile_layers: a %s engine does not tell the times of its layers",
      engine_->provider().name);
  return {};
}

bool Contexts::has_shapes(const ContextSlot& slot) const {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& argument = arguments_[i];
    if (argument.expected.is_input && slot.bound[i].shape != argument.call.shape) return false;
  }
  return slot.prepared && !slot.late;
}

bool Contexts::has_addresses() const {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument::Call& call = arguments_[i].call;
    const ContextSlot::Bound& bound = slot_->bound[i];
    const Memory copied = bound.moving ? Memory{} : call.copied;
    if (!(bound.memory == call.memory && bound.copied == copied)) return false;
  }
  return true;
}

void Contexts::take(ContextSlot& slot) {
  slot_ = &slot;
  slot.last_use = ++clock_;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (arguments_[i].expected.is_input) continue;
    arguments_[i].call.shape = slot.bound[i].shape;
    arguments_[i].call.late = slot.bound[i].late;
  }
}

// The one of the last call first.
ContextSlot* Contexts::find(bool changes) {
  const auto fits = [&](const ContextSlot& slot) {
    return !(changes && slot.fixed) && has_shapes(slot);
  };
  if (fits(*slot_)) return slot_;
  const auto found =
      std::find_if(slots_.begin(), slots_.end(), [&](const auto& slot) { return fits(*slot); });
  return found == slots_.end() ? nullptr : found->get();
}

ContextSlot* Contexts::find_warm() {
  ContextSlot* found = find(false);
  return found != nullptr && found->settled > 0 ? found : nullptr;
}

// An engine gives the shapes of its outputs when it has those of its inputs, before the addresses
// are known.
Status Contexts::choose(cuda::Stream stream, bool changes) {
  ContextSlot* const found = find(changes);
  const bool frequent =
      graphs_ && (found == nullptr || !found->kept) && history_.is_frequent(key_of_shapes());
  if (found != nullptr) {
    take(*found);
  } else {
    if (slot_->kept || slot_->fixed) TRT_ET_TRY(replace());
    TRT_ET_TRY(prepare(stream));
  }
  slot_->kept = slot_->kept || frequent;
  slot_->last_use = ++clock_;
  return {};
}

// A context for shapes that none has: one whose shapes do not come often, or a new one, or one that
// has not been used for long; else that of the last call.
Status Contexts::replace() {
  ContextSlot* oldest = nullptr;
  size_t changing = 0;
  for (const auto& slot : slots_) {
    if (slot->fixed) continue;
    ++changing;
    if (!slot->kept) return slot_ = slot.get(), Status{};
    if (oldest == nullptr || slot->last_use < oldest->last_use) oldest = slot.get();
  }
  if (oldest == nullptr || (changing < max_count_ && has_room_for_another())) {
    Status added = add();
    if (added.ok()) return slot_ = slots_.back().get(), Status{};
    if (oldest == nullptr) return added;
    max_count_ = changing;
  }
  if (slot_->fixed || clock_ - oldest->last_use > kIdleCalls) slot_ = oldest;
  slot_->kept = false;
  return {};
}

bool Contexts::has_room_for_another() const {
  if (scratch_ != nullptr || engine_->provider().memory_size == nullptr) return true;
  size_t wanted = 0, free = 0;
  return engine_->memory_size(&wanted).ok() && api_.free_memory(&free).ok() &&
         wanted <= free / kFreeShare;
}

Status Contexts::add() {
  auto slot = std::make_unique<ContextSlot>(api_, graphs_, arguments_.size(), queue_);
  const bool is_static = std::none_of(
      arguments_.begin(), arguments_.end(),
      [](const Argument& one) { return one.expected.dynamic || one.expected.any_shape; });
  const bool own = scratch_ == nullptr && is_static &&
                   (engine_->provider().flags & TRT_ET_PROVIDER_USER_MEMORY) != 0;
  const uint32_t flags = (scratch_ != nullptr || own ? TRT_ET_CONTEXT_USER_MEMORY : 0) |
                         (graphs_ ? TRT_ET_CONTEXT_GRAPHS : 0);
  TRT_ET_TRY(Context::create(*engine_, flags, &slot->context));
  if (own) {
    size_t bytes = 0;
    TRT_ET_TRY(engine_->memory_size(&bytes));
    TRT_ET_TRY(slot->memory.reserve(api_, device_, bytes));
    TRT_ET_TRY(slot->context->set_memory(slot->memory.data(), slot->memory.size()));
  }
  if (profile_ >= 0) TRT_ET_TRY(slot->context->set_profile(profile_));
  slots_.push_back(std::move(slot));
  return {};
}

// A graph that is going on is finished by CUDA before its memory goes.
void Contexts::change(ContextSlot& slot) {
  if (slot.replay.captured() && slot.replay.launches() < kEnoughLaunches) {
    needed_ = std::min(needed_ * 2, kMaxNeeded);
  }
  slot.replay.drop();
  slot.settled = 0;
}

// Gives the inputs' shapes to the context, and asks it for those of the outputs.
Status Contexts::prepare(cuda::Stream stream) {
  slot_->prepared = false;
  change(*slot_);
  for (size_t i = 0; i < arguments_.size(); ++i) {
    Argument& argument = arguments_[i];
    if (!argument.expected.is_input) continue;
    slot_->bound[i].shape = argument.call.shape;
    TRT_ET_TRY(slot_->context->set_input_shape(argument.binding, argument.call.shape.dims,
                                               argument.call.shape.rank));
  }
  TRT_ET_TRY(slot_->context->prepare(stream));
  slot_->late = false;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    Argument& argument = arguments_[i];
    if (argument.expected.is_input) continue;
    TRT_ET_TRY(find_output_shape(argument));
    slot_->bound[i].shape = argument.call.shape;
    slot_->bound[i].late = argument.call.late;
    slot_->late = slot_->late || argument.call.late;
  }
  slot_->prepared = true;
  return {};
}

Status Contexts::find_output_shape(Argument& argument) {
  const TensorSpec& expected = argument.expected;
  Argument::Call& call = argument.call;
  call.late = false;
  const bool fixed = !expected.dynamic && !expected.any_shape;
  if (!fixed) {
    TRT_ET_TRY(slot_->context->output_shape(argument.binding, call.shape.dims, &call.shape.rank));
    call.late = call.shape.rank < 0;
  }
  if (!fixed && !call.late) return {};
  if (expected.any_shape) {
    return fail(Error::NotSupported, "the shape of output '%.60s' is not known beforehand",
                expected.name.c_str());
  }
  call.shape.rank = static_cast<int32_t>(expected.max_shape.size());
  std::copy(expected.max_shape.begin(), expected.max_shape.end(), call.shape.dims);
  return {};
}

Status Contexts::set_addresses() {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& argument = arguments_[i];
    ContextSlot::Bound& bound = slot_->bound[i];
    const Memory copied = bound.moving ? Memory{} : argument.call.copied;
    if (!(copied == bound.copied)) {
      change(*slot_);
      bound.copied = copied;
    }
    const Memory& memory = argument.call.memory;
    if (memory == bound.memory) continue;
    change(*slot_);
    bound.memory = {};
    TRT_ET_TRY(slot_->context->set_address(argument.binding, memory.data, memory.bytes));
    bound.memory = memory;
  }
  return {};
}

Status Contexts::run(const WorkStream& stream) {
  if (scratch_ == nullptr) return enqueue(stream);
  return scratch_->use(stream, [&](const DeviceBuffer& memory) -> Status {
    if (memory.data() != slot_->scratch) {
      change(*slot_);
      TRT_ET_TRY(slot_->context->set_memory(memory.data(), memory.size()));
      slot_->scratch = memory.data();
    }
    return enqueue(stream);
  });
}

// The kernels of a graph run in the context that they were captured in, the primary one, and not in
// that of the stream which the graph is launched on: a green one would be left.
Status Contexts::enqueue(const WorkStream& stream) {
  GraphReplay& replay = slot_->replay;
  if (slot_->settled < kMaxNeeded) ++slot_->settled;
  on_green_ = stream.is_green;
  if (slot_->late || !graphs_ || on_green_) return queue_(stream.handle);
  Status status = replay.run(stream.handle, slot_->kept && slot_->settled > needed_);
  if (replay.captured()) ++launches_;
  if (replay.enabled()) return status;
  // What is refused once is refused for good, and no context is kept for a graph any more.
  graphs_ = false;
  no_graph_ = replay.refusal();
  for (const auto& slot : slots_) slot->kept = false;
  return status;
}

bool Contexts::are_captured() const {
  return std::count_if(slots_.begin(), slots_.end(),
                       [](const auto& slot) { return slot->fixed; }) >= kMaxCaptured;
}

void Contexts::clear() {
  slots_.clear();
  scratch_.reset();
}

void Contexts::forget() {
  for (const auto& slot : slots_) slot->forget();
}

uint64_t Contexts::key_of_shapes() const {
  uint64_t key = 1;
  for (const Argument& argument : arguments_) {
    if (!argument.expected.is_input) continue;
    for (int32_t i = 0; i < argument.call.shape.rank; ++i) {
      key = (key ^ static_cast<uint64_t>(argument.call.shape.dims[i])) * 0x9E3779B97F4A7C15u;
    }
  }
  return key;
}

void Contexts::warm_up(const Blob& blob) {
  if (!set_typical_shapes(blob, arguments_)) return;
  const Status status = run_on_zeros();
  if (!status.ok()) {
    log(LogLevel::info, "TensorRTBackend: warm_up_at_load: %s", status.text.c_str());
  }
  for (Argument& argument : arguments_) argument.call = {};
  forget();
}

Status Contexts::run_on_zeros() {
  WorkStream stream;
  TRT_ET_TRY(thread_stream(api_, device_, &stream));
  TRT_ET_TRY(choose(stream.handle, false));
  std::vector<DeviceBuffer> buffers(arguments_.size());
  for (size_t i = 0; i < arguments_.size(); ++i) {
    Argument& argument = arguments_[i];
    const MemoryShape& shape = argument.call.shape;
    size_t bytes = 0;
    if (argument.alias_of >= 0) {
      argument.call.memory = arguments_[static_cast<size_t>(argument.alias_of)].call.memory;
      continue;
    }
    if (!dense_bytes(argument.expected.dtype, shape.dims, static_cast<size_t>(shape.rank),
                     &bytes)) {
      return fail(Error::InvalidProgram, "'%.60s' is larger than any memory",
                  argument.expected.name.c_str());
    }
    TRT_ET_TRY(buffers[i].reserve(api_, device_, bytes));
    TRT_ET_TRY(api_.zero(buffers[i].data(), buffers[i].size(), stream.handle));
    argument.call.memory = {buffers[i].data(), buffers[i].size()};
  }
  Status status = set_addresses();
  if (status.ok()) status = run(stream);
  Status drained = api_.synchronize_stream(stream.handle);
  return status.ok() ? std::move(drained) : std::move(status);
}

}  // namespace trt_et
