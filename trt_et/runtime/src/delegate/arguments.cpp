#include "arguments.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <string>

#include "common/log.h"
#include "cuda/device_allocator.h"
#include "event_tracing.h"

namespace trt_et {

using cuda::CopyKind;
using cuda::MemoryKind;
using executorch::runtime::EValue;
using executorch::runtime::Span;

namespace {

// Once in a process: host tensors cost a copy and a wait at every run.
void log_staging(const std::string& name, int device) {
  static std::atomic<bool> logged{false};
  // Read first: threads that write to one variable in every run wait for each other.
  if (logged.load(std::memory_order_relaxed) || logged.exchange(true)) return;
  log(LogLevel::info,
      "TensorRTBackend: '%.60s' is in host memory, which is copied at every run of an engine on "
      "cuda:%d; tensors that the export plans on the GPU are not",
      name.c_str(), device);
}

// The host reads and writes its own memory as soon as the call returns, and managed memory unless
// ExecuTorch takes it for the GPU's.
bool is_for_host(const Argument& argument) {
  using executorch::runtime::etensor::DeviceType;
  const MemoryKind kind = argument.call.where.kind;
  if (kind == MemoryKind::pinned || kind == MemoryKind::host) return true;
  return kind == MemoryKind::managed &&
         argument.call.tensor->unsafeGetTensorImpl()->device_type() != DeviceType::CUDA;
}

}  // namespace

Status Arguments::create(const Blob& blob, const Engine& engine, const LoadOptions& options) {
  const auto& bindings = blob.metadata.bindings;
  cuda::DeviceInfo gpu;
  TRT_ET_TRY(api_.device_info(device_, &gpu));
  integrated_ = gpu.integrated;
  pageable_access_ = gpu.integrated && gpu.pageable_access;
  alignment_ = std::max<size_t>(1, engine.provider().alignment);
  std::vector<int32_t> aliases;
  for (const bool inputs : {true, false}) {
    for (size_t i = 0; i < bindings.size(); ++i) {
      if (bindings[i].is_input != inputs) continue;
      trt_et_binding described;
      TRT_ET_TRY(engine.describe(i, &described));
      Argument& argument = arguments_.emplace_back();
      argument.binding = i;
      aliases.push_back(described.alias_of);
      TRT_ET_TRY(TensorSpec::create(bindings[i], described, &argument.expected));
    }
    if (inputs) input_count_ = arguments_.size();
  }
  // An engine may have aliases that its blob does not name.
  for (size_t output = input_count_; output < arguments_.size(); ++output) {
    for (size_t input = 0; input < input_count_ && aliases[output] >= 0; ++input) {
      if (arguments_[input].binding == static_cast<size_t>(aliases[output])) {
        TRT_ET_TRY(set_alias(output, input));
      }
    }
  }
  TRT_ET_TRY(read_aliases(blob));
  TRT_ET_TRY(read_state_inputs(options));
  for (Argument& argument : arguments_) {
    if (options.host_planned && argument.expected.max_bytes > 0 && argument.alias_of < 0) {
      TRT_ET_TRY(stage(argument, argument.expected.max_bytes));
    }
  }
  return {};
}

Status Arguments::read_aliases(const Blob& blob) {
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < arguments_.size(); ++i) by_name[arguments_[i].expected.name] = i;
  for (const Alias& alias : blob.metadata.aliases) {
    // The parser has checked that both exist.
    TRT_ET_TRY(set_alias(by_name[alias.output], by_name[alias.input]));
  }
  return {};
}

Status Arguments::read_state_inputs(const LoadOptions& options) {
  for (const size_t index : options.state_inputs) {
    if (index < input_count_) continue;
    return fail(Error::InvalidProgram, "compile spec state_inputs names input %zu of %zu", index,
                input_count_);
  }
  uncleared_ = options.state_inputs;
  for (const size_t index : options.device_state) {
    if (index < arguments_.size() && !arguments_[index].expected.dynamic) continue;
    return fail(Error::InvalidProgram, "compile spec device_state names tensor %zu of %zu", index,
                arguments_.size());
  }
  device_state_ = options.device_state;
  return {};
}

Status Arguments::set_alias(size_t output, size_t input) {
  const TensorSpec& from = arguments_[input].expected;
  const TensorSpec& to = arguments_[output].expected;
  const bool same_shape = from.any_shape || to.any_shape || from.max_shape == to.max_shape;
  if (from.dtype != to.dtype || !same_shape) {
    return fail(Error::InvalidProgram, "aliased output '%.60s' does not have the type of '%.60s'",
                to.name.c_str(), from.name.c_str());
  }
  int& alias_of = arguments_[output].alias_of;
  if (alias_of >= 0 && static_cast<size_t>(alias_of) != input) {
    return fail(Error::InvalidProgram,
                "engine writes output '%.50s' into input '%.50s', its blob says '%.50s'",
                to.name.c_str(), arguments_[static_cast<size_t>(alias_of)].expected.name.c_str(),
                from.name.c_str());
  }
  alias_of = static_cast<int>(input);
  return {};
}

size_t Arguments::staging_bytes() const {
  size_t bytes = 0;
  for (const Argument& argument : arguments_) bytes += argument.staging.size();
  return bytes;
}

// The sizes of dynamic shapes come among the arguments as integers. The engine has no use for them:
// it reads every size off an input tensor.
Status Arguments::collect(Span<EValue*> values) {
  size_t count = 0;
  for (EValue* value : values) {
    if (value != nullptr && value->isInt()) continue;
    if (count < arguments_.size()) {
      Argument& argument = arguments_[count];
      TRT_ET_TRY(check_tensor(argument.expected, value, count, &argument.call.tensor));
    }
    ++count;
  }
  if (count != arguments_.size()) {
    return fail(Error::InvalidArgument,
                "engine has %zu inputs and %zu outputs, but the delegate got %zu tensors",
                input_count_, arguments_.size() - input_count_, count);
  }
  for (size_t i = 0; i < input_count_; ++i) {
    Argument& argument = arguments_[i];
    TRT_ET_TRY(check_shape(argument.expected, *argument.call.tensor, &argument.call.shape));
  }
  return {};
}

// A buffer and its new value may be one tensor.
Status Arguments::use_device_state() {
  for (const size_t index : device_state_) {
    Argument& argument = arguments_[index];
    const auto [host, bytes] = argument.call.own();
    if (host == nullptr || bytes == 0) continue;
    if (argument.past.state == nullptr || argument.past.host != host) {
      TRT_ET_TRY(DeviceState::of(host, api_, device_, bytes, &argument.past.state));
      argument.past.host = host;
    }
  }
  for (const size_t index : device_state_) {
    const Argument& argument = arguments_[index];
    if (argument.past.state == nullptr) continue;
    argument.call.tensor->unsafeGetTensorImpl()->set_data(argument.past.state->data());
  }
  return {};
}

void Arguments::restore_host_state() {
  for (const size_t index : device_state_) {
    const Argument& argument = arguments_[index];
    const auto& state = argument.past.state;
    if (state != nullptr && argument.call.tensor->const_data_ptr() == state->data()) {
      argument.call.tensor->unsafeGetTensorImpl()->set_data(argument.past.host);
    }
  }
}

// Nothing has written the state before: this delegate is its first reader in the method.
Status Arguments::clear_state() {
  for (const size_t index : uncleared_) {
    Argument& argument = arguments_[index];
    const auto [data, bytes] = argument.call.own();
    if (bytes == 0) continue;
    TRT_ET_TRY(locate(argument));
    const cuda::PointerInfo& where = argument.call.where;
    if (where.kind != MemoryKind::device && where.kind != MemoryKind::managed) continue;
    // The engine may have been moved away from its state.
    cuda::DeviceGuard guard(api_);
    const int device = where.kind == MemoryKind::device ? where.device : device_;
    TRT_ET_TRY(guard.enter(device));
    WorkStream stream;
    TRT_ET_TRY(thread_stream(api_, device, &stream));
    TRT_ET_TRY(api_.zero(data, bytes, stream.handle));
    TRT_ET_TRY(api_.synchronize_stream(stream.handle));
  }
  uncleared_.clear();
  return {};
}

// The tensor's own label is not trusted. CUDA is asked, unless our allocator has planned the
// memory. Pageable memory is remembered: if the address is a GPU's by now, a copy is right, too.
Status Arguments::locate(Argument& argument) {
  const auto [data, bytes] = argument.call.own();
  if (data == nullptr) {
    return fail(Error::InvalidArgument, "'%.60s' has no memory: its tensor's data is null",
                argument.expected.name.c_str());
  }
  cuda::PointerInfo& where = argument.call.where;
  where = {};
  if (data == argument.past.pageable) return {};
  const int planned = planned_device(data, bytes);
  if (planned >= 0) return where = {MemoryKind::device, planned}, Status{};
  TRT_ET_TRY(api_.pointer_info(data, &where));
  argument.past.pageable = where.kind == MemoryKind::host ? data : nullptr;
  return {};
}

// Staging memory is made at load for programs planned on the host, and else at the first call that
// needs it. The largest shape is known then, so it is made once.
Status Arguments::stage(Argument& argument, size_t bytes) {
  if (!argument.staging.fits(bytes)) {
    if (argument.staging.data() != nullptr) TRT_ET_TRY(stream_.wait_for_last());
    TRT_ET_TRY(
        argument.staging.reserve(api_, device_, std::max(bytes, argument.expected.max_bytes)));
  }
  argument.call.memory = {argument.staging.data(), argument.staging.size()};
  return {};
}

bool Arguments::is_reachable(const Argument& argument) const {
  const cuda::PointerInfo& where = argument.call.where;
  // Memory of the host that an integrated GPU shares is read and written where it lies. A copy from
  // it would not be one on the device.
  if (where.kind == MemoryKind::pinned) return integrated_ && where.mapped && is_aligned(argument);
  if (where.kind == MemoryKind::host) return pageable_access_ && is_aligned(argument);
  return where.kind == MemoryKind::managed ||
         (where.kind == MemoryKind::device && where.device == device_);
}

bool Arguments::is_aligned(const Argument& argument) const {
  return reinterpret_cast<uintptr_t>(argument.call.own().data) % alignment_ == 0;
}

bool Arguments::is_usable(const Argument& argument) const {
  return is_reachable(argument) && is_aligned(argument);
}

// CUDA has no copy on the device from or to pageable memory.
bool Arguments::is_copied_on_device(const Argument& argument) const {
  return is_reachable(argument) && argument.call.where.kind != MemoryKind::host;
}

Status Arguments::place(Contexts& contexts, bool* wait) {
  const ContextSlot& slot = contexts.current();
  for (size_t i = 0; i < arguments_.size(); ++i) {
    Argument& argument = arguments_[i];
    argument.call.copied = {};
    TRT_ET_TRY(i < input_count_ ? place_input(argument, contexts.bound(i), slot, wait)
                                : place_output(argument, contexts.bound(i), slot, wait));
  }
  return {};
}

Status Arguments::place_input(Argument& argument, ContextSlot::Bound& bound,
                              const ContextSlot& slot, bool* wait) {
  Argument::Call& call = argument.call;
  const Memory own = call.own();
  if (own.bytes == 0) {
    // An engine wants an address even where there is nothing to read.
    TRT_ET_TRY(stage(argument, 0));
  } else {
    TRT_ET_TRY(locate(argument));
    const bool pageable = call.where.kind == MemoryKind::host;
    *wait = *wait || (is_for_host(argument) && !pageable);
    if (is_reachable(argument)) slot.see(bound, own);
    if (is_usable(argument) && !bound.moving) {
      call.memory = own;
      *wait = *wait || pageable;
    } else {
      TRT_ET_TRY(copy_in(argument, wait));
    }
  }
  return {};
}

// Whether an output lies on an input as the engine has it. A program that keeps state on the GPU
// passes a buffer and its new value as the same memory, and an engine may write an
// output before it has read all of its inputs.
bool Arguments::overlaps_input(const Memory& memory) const {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data);
  return std::any_of(arguments_.begin(),
                     arguments_.begin() + static_cast<std::ptrdiff_t>(input_count_),
                     [&](const Argument& input) {
                       const auto other = reinterpret_cast<uintptr_t>(input.call.memory.data);
                       return begin < other ? other - begin < memory.bytes
                                            : begin - other < input.call.memory.bytes;
                     });
}

Status Arguments::place_output(Argument& argument, ContextSlot::Bound& bound,
                               const ContextSlot& slot, bool* wait) {
  Argument::Call& call = argument.call;
  // Only resizing the tensor shows how large it may become, so the engine gets memory of ours.
  if (call.late) return stage(argument, argument.expected.max_bytes);
  TRT_ET_TRY(resize_output(argument.expected, call.shape, *call.tensor));
  const Memory own = call.own();
  const bool empty = own.bytes == 0;
  if (!empty) TRT_ET_TRY(locate(argument));
  const bool reachable = !empty && is_reachable(argument);
  if (reachable) slot.see(bound, own);
  *wait = *wait || (reachable && is_for_host(argument));
  if (argument.alias_of >= 0) {
    call.memory = arguments_[static_cast<size_t>(argument.alias_of)].call.memory;
  } else if (reachable && is_usable(argument) && !bound.moving && !overlaps_input(own)) {
    call.memory = own;
  } else {
    TRT_ET_TRY(stage(argument, own.bytes));
  }
  if (!empty && call.memory.data != own.data && is_copied_on_device(argument)) call.copied = own;
  return {};
}

Status Arguments::copy(bool inputs, const Contexts& contexts, Copied which, cuda::Stream stream) {
  const size_t begin = inputs ? 0 : input_count_;
  const size_t end = inputs ? input_count_ : arguments_.size();
  for (size_t i = begin; i < end; ++i) {
    if (contexts.is_moving(i) != (which == Copied::moving)) continue;
    TRT_ET_TRY(copy_on_device(arguments_[i], stream));
  }
  return {};
}

// Between a tensor and staging memory on the engine's own device.
Status Arguments::copy_on_device(const Argument& argument, cuda::Stream stream) {
  const auto& [data, bytes] = argument.call.copied;
  if (data == nullptr) return {};
  const TraceEvent event("d2d");
  const bool in = argument.expected.is_input;
  void* const staged = argument.call.memory.data;
  return api_.copy(in ? staged : data, in ? data : staged, bytes, CopyKind::device_to_device,
                   stream);
}

Status Arguments::finish_outputs(Contexts& contexts, bool* wait) {
  for (size_t i = input_count_; i < arguments_.size(); ++i) {
    TRT_ET_TRY(finish_output(arguments_[i], contexts, wait));
  }
  return {};
}

Status Arguments::finish_output(Argument& argument, Contexts& contexts, bool* wait) {
  Argument::Call& call = argument.call;
  if (call.late) {
    MemoryShape shape;
    TRT_ET_TRY(contexts.current().context->output_shape(argument.binding, shape.dims, &shape.rank));
    TRT_ET_TRY(resize_output(argument.expected, shape, *call.tensor));
    if (call.own().bytes > 0) TRT_ET_TRY(locate(argument));
  }
  const Memory own = call.own();
  if (own.bytes == 0 || call.copied.data != nullptr || call.memory.data == own.data) return {};
  return copy_out(argument, wait);
}

Status Arguments::copy_in(Argument& argument, bool* wait) {
  Argument::Call& call = argument.call;
  const Memory own = call.own();
  TRT_ET_TRY(stage(argument, own.bytes));
  if (is_copied_on_device(argument)) {
    call.copied = own;
    return {};
  }
  if (call.where.kind == MemoryKind::device) return copy_peer(argument, true);
  const TraceEvent event("h2d");
  log_staging(argument.expected.name, device_);
  // CUDA may read host memory after this call, when the planner has reused it.
  *wait = true;
  return api_.copy(call.memory.data, own.data, own.bytes, CopyKind::host_to_device,
                   stream_.handle());
}

Status Arguments::copy_out(Argument& argument, bool* wait) {
  Argument::Call& call = argument.call;
  const auto [to, bytes] = call.own();
  if (is_copied_on_device(argument)) {
    const TraceEvent event("d2d");
    *wait = *wait || is_for_host(argument);
    return api_.copy(to, call.memory.data, bytes, CopyKind::device_to_device, stream_.handle());
  }
  if (call.where.kind == MemoryKind::device) return copy_peer(argument, false);
  const TraceEvent event("d2h");
  log_staging(argument.expected.name, device_);
  *wait = true;
  return api_.copy(to, call.memory.data, bytes, CopyKind::device_to_host, stream_.handle());
}

// From or to another GPU. Its stream may still use what is there, and what comes after must see
// what is written, or not write before it has been read.
Status Arguments::copy_peer(Argument& argument, bool in) {
  const TraceEvent event("peer copy");
  const int other = argument.call.where.device;
  const auto [own, bytes] = argument.call.own();
  void* const staged = argument.call.memory.data;
  cuda::Stream others = nullptr;
  {
    cuda::DeviceGuard guard(api_);
    TRT_ET_TRY(guard.enter(other));
    TRT_ET_TRY(stream_.find_on(other, &others));
  }
  const cuda::Stream ours = stream_.handle();
  TRT_ET_TRY(order_streams(api_, other, others, device_, ours));
  TRT_ET_TRY(in ? api_.copy_peer(staged, device_, own, other, bytes, ours)
                : api_.copy_peer(own, other, staged, device_, bytes, ours));
  return order_streams(api_, device_, ours, other, others);
}

// What a graph holds is read again whenever it is launched: nothing may depend on this call.
Status Arguments::place_for_capture(const ContextSlot& slot) {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    Argument& argument = arguments_[i];
    Argument::Call& call = argument.call;
    const ContextSlot::Bound& bound = slot.bound[i];
    if (i >= input_count_) TRT_ET_TRY(resize_output(argument.expected, call.shape, *call.tensor));
    const Memory own = call.own();
    call.copied = {};
    call.memory = bound.memory;
    if (own.bytes == 0) continue;
    TRT_ET_TRY(locate(argument));
    if (!is_reachable(argument) || is_for_host(argument)) {
      return fail(Error::NotSupported, "the stream is captured, and '%.60s' is not on cuda:%d",
                  argument.expected.name.c_str(), device_);
    }
    if (bound.moving || bound.copied.data != nullptr) call.copied = own;
    if (bound.moving || (bound.copied.data != nullptr ? bound.copied : bound.memory) == own) {
      continue;
    }
    return fail(Error::NotSupported,
                "the stream is captured, and '%.60s' is at another address than before: call with "
                "these tensors before the capture",
                argument.expected.name.c_str());
  }
  return {};
}

}  // namespace trt_et
