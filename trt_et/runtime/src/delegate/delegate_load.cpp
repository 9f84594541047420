// What a delegate reads out of its blob and its engine.
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/device_allocator.h>

#include <unordered_map>

#include "common/log.h"
#include "cuda/device_allocator.h"
#include "cuda/streams.h"
#include "delegate.h"
#include "engine/compatibility.h"

namespace trt_et {

using executorch::runtime::FreeableBuffer;

namespace {

// The GPU to load for: the blob's, or the one that the user moves it to.
Status choose_device(const Blob& blob, const LoadOptions& options, int* device) {
  if (!options.device.has_value()) return device_of(blob, device);
  *device = *options.device;
  int recorded = 0;
  if (device_of(blob, &recorded).ok() && recorded != *device) {
    log(LogLevel::debug, "TensorRTBackend: engine for cuda:%d is moved to cuda:%d by option",
        recorded, *device);
  }
  return {};
}

}  // namespace

Status Delegate::create(FreeableBuffer* processed, const LoadOptions& options,
                        std::unique_ptr<Delegate>* delegate) {
  Blob blob;
  int device = 0;
  TRT_ET_TRY(parse_blob(processed->data(), processed->size(), &blob));
  TRT_ET_TRY(choose_device(blob, options, &device));
  std::vector<trt_et_binding> bindings;
  trt_et_engine_request request = make_request(blob, device, options, &bindings);
  const trt_et_engine_provider* provider = nullptr;
  TRT_ET_TRY(find_provider(blob, request, &provider));
  cuda::Api* api = nullptr;
  TRT_ET_TRY(cuda::access(&api));
  find_caller_streams();
  request_pinned_staging(options.pinned_staging);
  cuda::DeviceGuard guard(*api);
  TRT_ET_TRY(guard.enter(device));
  if (!blob.is_reference()) TRT_ET_TRY(check_compatibility(*api, blob, device));
  cuda::DeviceInfo gpu;
  TRT_ET_TRY(api->device_info(device, &gpu));
  request.gpu = gpu.name.c_str();
  std::unique_ptr<Delegate> created(new Delegate(*api, device, options));
  TRT_ET_TRY(Engine::load(*provider, blob, request, &created->engine_));
  TRT_ET_TRY(created->load(blob, options));
  log(LogLevel::debug, "TensorRTBackend: loaded a %s engine of %zu bytes on cuda:%d%s",
      provider->name, blob.engine_size, device,
      blob.is_reference() ? " (simulated, CPU arithmetic)" : "");
  if (!created->engine_->keeps_bytes()) processed->Free();
  *delegate = std::move(created);
  return {};
}

// With memory of its own, or of the method's.
Status Delegate::create_context(const LoadOptions& options) {
  const trt_et_engine_provider& provider = engine_->provider();
  const bool can_share = provider.memory_size != nullptr && provider.set_memory != nullptr;
  if (options.shared_device_memory && can_share) {
    size_t bytes = 0;
    TRT_ET_TRY(engine_->memory_size(&bytes));
    scratch_ = Scratch::of(options.method, api_, device_);
    TRT_ET_TRY(scratch_->reserve(bytes));
  }
  TRT_ET_TRY(add_slot());
  slot_ = slots_.back().get();
  return options.profile_layers ? profile_layers() : Status{};
}

Status Delegate::profile_layers() {
  if (!slot_->context->can_profile_layers()) {
    log(LogLevel::info,
        "TensorRTBackend: profile_layers: a %s engine does not tell the times of its layers",
        engine_->provider().name);
    return {};
  }
  graphs_ = false;  // A graph's launch reports nothing.
  return slot_->context->profile_layers(LayerEvents::report, &layers_);
}

Status Delegate::load(const Blob& blob, const LoadOptions& options) {
  const trt_et_engine_provider& provider = engine_->provider();
  alignment_ = provider.alignment == 0 ? 1 : provider.alignment;
  graphs_ = graphs_ && !options.profile_layers && (provider.flags & TRT_ET_PROVIDER_GRAPHS) != 0;
  TRT_ET_TRY(read_arguments(blob));
  TRT_ET_TRY(read_aliases(blob));
  TRT_ET_TRY(read_state_inputs(options));
  TRT_ET_TRY(create_context(options));
  for (Argument& argument : arguments_) {
    if (options.host_planned && argument.expected.max_bytes > 0 && argument.alias_of < 0) {
      TRT_ET_TRY(stage(argument, argument.expected.max_bytes));
    }
  }
  return create_events();
}

// ExecuTorch's CUDA backend runs on blocking streams of its own; its allocator does not know of
// trt_et_use_stream.
Status Delegate::create_events() {
  namespace runtime = executorch::runtime;
  TRT_ET_TRY(api_.create_event(&done_));
  beside_cuda_backend_ = runtime::get_backend_class("CudaBackend") != nullptr;
  const auto* allocator = runtime::get_device_allocator(runtime::etensor::DeviceType::CUDA);
  const bool others = allocator != nullptr && allocator != &cuda_allocator();
  return beside_cuda_backend_ || others ? api_.create_event(&before_) : Status{};
}

Status Delegate::read_arguments(const Blob& blob) {
  const auto& bindings = blob.metadata.bindings;
  std::vector<int32_t> aliases;
  for (const bool inputs : {true, false}) {
    for (size_t i = 0; i < bindings.size(); ++i) {
      if (bindings[i].is_input != inputs) continue;
      trt_et_binding described;
      TRT_ET_TRY(engine_->describe(i, &described));
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
  return {};
}

Status Delegate::read_aliases(const Blob& blob) {
  std::unordered_map<std::string, size_t> by_name;
  for (size_t i = 0; i < arguments_.size(); ++i) by_name[arguments_[i].expected.name] = i;
  for (const Alias& alias : blob.metadata.aliases) {
    // The parser has checked that both exist.
    TRT_ET_TRY(set_alias(by_name[alias.output], by_name[alias.input]));
  }
  return {};
}

Status Delegate::read_state_inputs(const LoadOptions& options) {
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

Status Delegate::set_alias(size_t output, size_t input) {
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

}  // namespace trt_et
