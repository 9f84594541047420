#include "delegate.h"

#include <executorch/runtime/platform/log.h>

#include <unordered_map>

#include "event_tracing.h"
#include "streams.h"

namespace trt_et {

using executorch::runtime::FreeableBuffer;
using executorch::runtime::Span;

Status Delegate::create(FreeableBuffer* processed, std::unique_ptr<Delegate>* delegate) {
  Blob blob;
  int device = 0;
  TRT_ET_TRY(parse_blob(processed->data(), processed->size(), &blob));
  TRT_ET_TRY(device_of(blob, &device));
  const trt_et_engine_provider* provider = nullptr;
  TRT_ET_TRY(find_provider(blob, device, &provider));
  cuda::Api* api = nullptr;
  TRT_ET_TRY(cuda::access(&api));
  cuda::DeviceGuard guard(*api);
  TRT_ET_TRY(guard.enter(device));
  std::unique_ptr<Delegate> created(new Delegate(*api, device));
  TRT_ET_TRY(Engine::load(*provider, blob, device, &created->engine_));
  TRT_ET_TRY(created->load(blob));
  ET_LOG(Info, "TensorRTBackend: loaded a %s engine of %zu bytes on cuda:%d%s", provider->name,
         blob.engine_size, device, blob.is_reference() ? " (simulated, CPU arithmetic)" : "");
  if (!created->engine_->keeps_bytes()) processed->Free();
  *delegate = std::move(created);
  return {};
}

Status Delegate::load(const Blob& blob) {
  TRT_ET_TRY(Context::create(*engine_, &context_));
  TRT_ET_TRY(read_arguments(blob));
  TRT_ET_TRY(read_aliases(blob));
  return api_.create_event(&done_);
}

Status Delegate::read_arguments(const Blob& blob) {
  const auto& bindings = blob.metadata.bindings;
  for (const bool inputs : {true, false}) {
    for (size_t i = 0; i < bindings.size(); ++i) {
      if (bindings[i].is_input != inputs) continue;
      trt_et_binding described;
      TRT_ET_TRY(engine_->describe(i, &described));
      Argument& argument = arguments_.emplace_back();
      argument.binding = i;
      TRT_ET_TRY(Expectation::create(bindings[i], described, &argument.expected));
    }
    if (inputs) input_count_ = arguments_.size();
  }
  return {};
}

Status Delegate::read_aliases(const Blob& blob) {
  std::unordered_map<std::string, size_t> by_name;
  for (size_t i = 0; i < arguments_.size(); ++i) by_name[arguments_[i].expected.name] = i;
  for (const Alias& alias : blob.metadata.aliases) {
    // The parser has checked that both exist.
    const size_t input = by_name[alias.input], output = by_name[alias.output];
    const Expectation& from = arguments_[input].expected;
    const Expectation& to = arguments_[output].expected;
    if (from.dtype != to.dtype || from.max_shape != to.max_shape) {
      return fail(Error::InvalidProgram, "aliased output '%.60s' does not have the type of '%.60s'",
                  alias.output.c_str(), alias.input.c_str());
    }
    arguments_[output].alias_of = static_cast<int>(input);
  }
  return {};
}

Delegate::~Delegate() {
  cuda::DeviceGuard guard(api_);
  (void)report(guard.enter(device_));
  // Queued runs use the context and the staging memory.
  if (has_run_) (void)report(api_.synchronize_event(done_));
  if (done_ != nullptr) (void)report(api_.destroy_event(done_));
  context_.reset();
  engine_.reset();
}

// Runs of one context must not overlap: a new stream first waits for the last run on the old one.
Status Delegate::join_stream(cuda::Stream stream) {
  if (has_run_ && last_stream_ != stream) TRT_ET_TRY(api_.wait_event(stream, done_));
  last_stream_ = stream;
  return {};
}

// The sizes of dynamic shapes come among the arguments as integers. The engine has no use for them:
// it reads every size off an input tensor.
Status Delegate::collect(Span<EValue*> values) {
  size_t count = 0;
  for (EValue* value : values) {
    if (value != nullptr && value->isInt()) continue;
    if (count < arguments_.size()) {
      Argument& argument = arguments_[count];
      TRT_ET_TRY(check_tensor(argument.expected, value, count, &argument.tensor));
    }
    ++count;
  }
  if (count == arguments_.size()) return {};
  return fail(Error::InvalidArgument,
              "engine has %zu inputs and %zu outputs, but the delegate got %zu tensors",
              input_count_, arguments_.size() - input_count_, count);
}

Status Delegate::execute(Span<EValue*> arguments) {
  const std::lock_guard<std::mutex> lock(mutex_);
  TRT_ET_TRY(collect(arguments));
  cuda::DeviceGuard guard(api_);
  TRT_ET_TRY(guard.enter(device_));
  cuda::Stream stream = nullptr;
  TRT_ET_TRY(thread_stream(api_, device_, &stream));
  TRT_ET_TRY(join_stream(stream));
  bool wait = false;
  Status status = run(stream, &wait);
  if (status.ok()) {
    status = api_.record_event(done_, stream);
    has_run_ = has_run_ || status.ok();
  }
  if (status.ok() && !wait) return {};
  // After a failure too: what is queued uses memory that the caller may free next.
  const TraceEvent event("wait");
  Status drained = api_.synchronize_stream(stream);
  return status.ok() ? std::move(drained) : std::move(status);
}

Status Delegate::run(cuda::Stream stream, bool* wait) {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    Argument& argument = arguments_[i];
    if (i < input_count_)
      TRT_ET_TRY(check_shape(argument.expected, *argument.tensor, &argument.shape));
  }
  for (size_t i = 0; i < input_count_; ++i) {
    TRT_ET_TRY(bind_input(arguments_[i], stream, wait));
  }
  for (size_t i = input_count_; i < arguments_.size(); ++i) {
    TRT_ET_TRY(bind_output(arguments_[i], stream));
  }
  {
    const TraceEvent event("enqueue");
    TRT_ET_TRY(context_->enqueue(stream));
  }
  bool late = false;
  for (size_t i = input_count_; i < arguments_.size(); ++i) late = late || arguments_[i].late;
  if (late) TRT_ET_TRY(api_.synchronize_stream(stream));
  for (size_t i = input_count_; i < arguments_.size(); ++i) {
    TRT_ET_TRY(finish_output(arguments_[i], stream, wait));
  }
  return {};
}

}  // namespace trt_et
