#include "delegate.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/immortal.h"
#include "common/log.h"
#include "engine_source.h"
#include "event_tracing.h"

namespace trt_et {

using executorch::runtime::EValue;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::NamedDataMap;
using executorch::runtime::Span;

namespace {

struct Loaded {
  std::mutex mutex;
  std::vector<Delegate*> delegates;
};

}  // namespace

// A delegate that a call keeps busy is waited for without the list's lock, so that others can be
// loaded and freed meanwhile.
std::string Delegate::describe_all() {
  if (cuda::is_forked()) return "[]";
  std::vector<std::shared_ptr<Handle>> handles;
  {
    auto& all = immortal<Loaded>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (Delegate* delegate : all.delegates) handles.push_back(delegate->handle_);
  }
  std::string text;
  for (const auto& handle : handles) {
    const std::lock_guard<std::mutex> lock(handle->mutex);
    if (handle->delegate == nullptr) continue;  // Freed meanwhile.
    text += (text.empty() ? "" : ", ") + handle->delegate->describe();
  }
  return "[" + text + "]";
}

std::string Delegate::describe() {
  const std::lock_guard<std::mutex> lock(mutex_);
  cuda::DeviceGuard guard(api_);
  (void)report(guard.enter(device_));
  nlohmann::json facts;
  facts["device"] = device_;
  facts["engine"] = engine_->provider().name;
  facts["engine_bytes"] = engine_->bytes();
  facts["contexts"] = contexts_.count();
  const int profile = contexts_.current().context->profile();
  facts["profile"] = profile < 0 ? nlohmann::json() : nlohmann::json(profile);
  facts["graph_launches"] = contexts_.graph_launches();
  facts["no_graph"] = contexts_.no_graph();
  facts["staging_bytes"] = arguments_.staging_bytes();
  size_t scratch = 0;
  const bool known =
      engine_->provider().memory_size != nullptr && engine_->memory_size(&scratch).ok();
  facts["scratch_bytes_per_context"] = known ? nlohmann::json(scratch) : nlohmann::json();
  return facts.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

Status Delegate::create(FreeableBuffer* processed, const NamedDataMap* named_data,
                        const LoadOptions& options, std::unique_ptr<Delegate>* delegate) {
  EngineSource source;
  EngineSource::FindData find_data;
  if (named_data != nullptr) {
    find_data = [named_data](const char* key) { return named_data->get_data(key); };
  }
  TRT_ET_TRY(source.open(processed->data(), processed->size(), find_data, options));
  cuda::DeviceGuard guard(source.api());
  TRT_ET_TRY(guard.enter(source.device()));
  TRT_ET_TRY(source.fit());
  std::unique_ptr<Delegate> created(new Delegate(source.api(), source.device()));
  Status loaded = created->load(source, options);
  if (!loaded.ok()) return cuda::unless_lost(source.api(), std::move(loaded));
  log(LogLevel::debug, "TensorRTBackend: loaded a %s engine of %zu bytes on cuda:%d%s",
      source.provider().name, created->engine_->bytes(), source.device(),
      source.blob().is_reference() ? " (simulated, CPU arithmetic)" : "");
  {
    auto& all = immortal<Loaded>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.delegates.push_back(created.get());
  }
  auto& external = source.external_engine();
  const bool keeps_bytes = created->engine_->keeps_bytes();
  if (keeps_bytes && external) created->external_engine_.emplace(std::move(*external));
  if (!keeps_bytes || external) processed->Free();
  *delegate = std::move(created);
  return {};
}

Status Delegate::load(const EngineSource& source, const LoadOptions& options) {
  const Blob& blob = source.blob();
  TRT_ET_TRY(source.load(&engine_));
  TRT_ET_TRY(arguments_.create(blob, *engine_, options));
  TRT_ET_TRY(debug_outputs_.create(arguments_.all()));
  TRT_ET_TRY(contexts_.create(*engine_, options));
  TRT_ET_TRY(stream_.create(options.blocking_waits));
  if (options.warm_up_at_load) contexts_.warm_up(blob);
  return {};
}

// Its members need the device, and queued runs use the contexts and the staging memory.
Delegate::~Delegate() {
  {
    auto& all = immortal<Loaded>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    auto& delegates = all.delegates;
    delegates.erase(std::remove(delegates.begin(), delegates.end(), this), delegates.end());
  }
  {
    const std::lock_guard<std::mutex> lock(handle_->mutex);
    handle_->delegate = nullptr;
  }
  cuda::DeviceGuard guard(api_);
  (void)report(guard.enter(device_));
  (void)report(stream_.wait_for_last());
  contexts_.clear();
  stream_.clear();
  engine_.reset();
}

Status Delegate::execute(Span<EValue*> values) {
  const std::lock_guard<std::mutex> lock(mutex_);
  TRT_ET_TRY(arguments_.collect(debug_outputs_.append_to(values)));
  cuda::DeviceGuard guard(api_);
  TRT_ET_TRY(guard.enter(device_));
  WorkStream stream;
  TRT_ET_TRY(thread_stream(api_, device_, &stream));
  bool captured = false;
  if (stream.may_be_captured) TRT_ET_TRY(api_.is_captured(stream.handle, &captured));
  if (captured) return run_captured(stream);
  TRT_ET_TRY(stream_.join(stream));
  // Another method may use shared state next, on another thread's stream.
  bool wait = arguments_.has_shared_state();
  // An exception is out of memory on the host.
  struct Scope {
    Delegate& delegate;
    bool finished = false;
    ~Scope() {
      if (!finished) delegate.abandon();
      delegate.arguments_.restore_host_state();
    }
  } scope{*this};
  Status status = arguments_.use_device_state();
  if (status.ok()) status = run(stream, &wait);
  status = finish(std::move(status), wait);
  scope.finished = true;
  if (status.ok()) debug_outputs_.log();
  return status;
}

Status Delegate::run(const WorkStream& stream, bool* wait) {
  TRT_ET_TRY(arguments_.clear_state());
  TRT_ET_TRY(choose_and_place(stream.handle, wait));
  TRT_ET_TRY(contexts_.set_addresses());
  TRT_ET_TRY(arguments_.copy(/*inputs=*/true, contexts_, Arguments::Copied::moving, stream.handle));
  TRT_ET_TRY(contexts_.run(stream));
  TRT_ET_TRY(
      arguments_.copy(/*inputs=*/false, contexts_, Arguments::Copied::moving, stream.handle));
  if (contexts_.current().late) TRT_ET_TRY(api_.synchronize_stream(stream.handle));
  return arguments_.finish_outputs(contexts_, wait);
}

// Shapes first: what no optimization profile takes is refused before anything is queued.
Status Delegate::choose_and_place(cuda::Stream stream, bool* wait) {
  TRT_ET_TRY(contexts_.choose(stream, false));
  TRT_ET_TRY(arguments_.place(contexts_, wait));
  if (!contexts_.current().fixed || contexts_.has_addresses()) return {};
  TRT_ET_TRY(contexts_.choose(stream, true));
  return arguments_.place(contexts_, wait);
}

// What a CUDA graph holds: the engine, and the copies on its device before and after.
Status Delegate::queue(cuda::Stream stream) {
  TRT_ET_TRY(arguments_.copy(/*inputs=*/true, contexts_, Arguments::Copied::staying, stream));
  {
    const TraceEvent event("enqueue");
    contexts_.layers().begin();
    TRT_ET_TRY(contexts_.current().context->enqueue(stream));
  }
  return arguments_.copy(/*inputs=*/false, contexts_, Arguments::Copied::staying, stream);
}

// Leaves the run queued, with an event behind it, or waits for it.
Status Delegate::finish(Status status, bool wait) {
  if (status.ok() && !wait) {
    status = stream_.leave();
    if (status.ok()) return {};
  }
  // After a failure too: what is queued uses memory that the caller may free next.
  const TraceEvent event("wait");
  Status drained = stream_.drain();
  if (status.ok() && drained.ok()) return {};
  contexts_.forget();
  // That the GPU is lost says more than what failed first because of it.
  const bool lost = drained.error == Error::AccessFailed;
  return status.ok() || lost ? std::move(drained) : std::move(status);
}

void Delegate::abandon() noexcept {
  try {
    (void)stream_.drain();
    contexts_.forget();
  } catch (const std::exception&) {  // The call fails all the same.
  }
}

// The caller records a graph of its own. Nothing may wait, allocate or change a context meanwhile,
// nor afterwards what the graph holds; and an event that is recorded now can never be waited for.
Status Delegate::run_captured(const WorkStream& stream) {
  if (stream_.is_busy_elsewhere(stream)) {
    return fail(Error::NotSupported,
                "the stream is captured, and the last run was on another: call once on this stream "
                "before the capture");
  }
  if (arguments_.has_state() || !contexts_.can_be_captured()) {
    return fail(Error::NotSupported,
                "the stream is captured: no run with shared state or shared scratch memory, or of "
                "layers that are timed, can be");
  }
  ContextSlot* const slot = contexts_.find_warm();
  if (slot == nullptr) {
    return fail(
        Error::NotSupported,
        "the stream is captured, and these shapes have not run yet: call with these tensors "
        "before the capture");
  }
  contexts_.take(*slot);
  TRT_ET_TRY(slot->context->check_capture(stream.handle));
  TRT_ET_TRY(arguments_.place_for_capture(*slot));
  if (!slot->fixed && contexts_.are_captured()) {
    return fail(Error::NotSupported,
                "the stream is captured, and graphs hold all contexts that a method gives to them: "
                "capture with the tensors of an earlier graph, or load the method again");
  }
  slot->fixed = true;
  TRT_ET_TRY(arguments_.copy(/*inputs=*/true, contexts_, Arguments::Copied::moving, stream.handle));
  TRT_ET_TRY(queue(stream.handle));
  return arguments_.copy(/*inputs=*/false, contexts_, Arguments::Copied::moving, stream.handle);
}

}  // namespace trt_et
