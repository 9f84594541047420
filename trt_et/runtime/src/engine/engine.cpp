#include "engine.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <tuple>

#include "build_progress.h"
#include "common/dtype.h"
#include "common/engine_identity.h"
#include "common/immortal.h"
#include "common/shared_objects.h"
#include "cuda/cuda_api.h"

namespace trt_et {
namespace {

std::atomic<uint64_t> g_live{0}, g_loads{0};

trt_et_binding provider_binding(const Binding& binding) {
  trt_et_binding out{};
  out.name = binding.name.c_str();
  out.is_input = binding.is_input ? 1 : 0;
  out.alias_of = -1;
  const auto dtype = dtype_from_name(binding.dtype);
  out.dtype = dtype ? static_cast<int32_t>(*dtype) : -1;
  // A foreign blob without a dtype has no shape either: its [] is not a 0-d tensor.
  out.rank = dtype ? static_cast<int32_t>(binding.shape.size()) : -1;
  const bool dynamic = binding.is_dynamic();
  const Dims& low = dynamic ? binding.min_shape : binding.shape;
  const Dims& high = dynamic ? binding.max_shape : binding.shape;
  std::copy(binding.shape.begin(), binding.shape.end(), out.dims);
  std::copy(low.begin(), low.end(), out.min_dims);
  std::copy(high.begin(), high.end(), out.max_dims);
  return out;
}

// What makes two loads the same.
using Key =
    std::tuple<const trt_et_engine_provider*, std::string, size_t, int, int64_t, std::string, int>;

Key key_of(const trt_et_engine_provider& provider, const Blob& blob,
           const trt_et_engine_request& request) {
  return Key(&provider, identity_of(request), blob.engine_size, request.device,
             request.weight_streaming_budget, request.runtime_cache, request.dla_core);
}

// What the loads of one engine have in common, for as long as one of them goes on or has its
// engine.
struct Slot {
  std::mutex loading;  // held while it is being loaded
  std::weak_ptr<Engine> engine;
};

using Slots = SharedObjects<Key, Slot>;

// After a provider's first engine: TensorRT itself is open by then.
void note_library_of(const trt_et_engine_provider& provider) {
  static std::mutex mutex;
  static auto* used = new std::set<const trt_et_engine_provider*>;
  const std::lock_guard<std::mutex> lock(mutex);
  if (used->insert(&provider).second) cuda::note_opened_library();
}

}  // namespace

Status check(const trt_et_engine_provider& provider, int code, const char* what) {
  if (code == 0) return {};
  const char* text = provider.last_error();
  const auto error = static_cast<Error>(code);
  if (text != nullptr && *text != '\0') return fail(error, "%s", text);
  return fail(error, "%s engine: %s failed", provider.name, what);
}

Status build_engine(const trt_et_engine_provider& provider, const trt_et_engine_request& request,
                    BuiltEngine* built) {
  void* owner = nullptr;
  const int code = provider.build(&request, &built->bytes, &built->size, &owner);
  built->owner = {owner, provider.free_built};
  built->file = code == 0 && provider.kept_in != nullptr ? provider.kept_in(owner) : "";
  return check(provider, code, "build");
}

uint64_t live_engines() { return g_live; }
uint64_t engine_loads() { return g_loads; }

trt_et_engine_request make_request(const Blob& blob, int device, const LoadOptions& options,
                                   std::vector<trt_et_binding>* bindings, OptDims* opt_dims) {
  const Metadata& metadata = blob.metadata;
  bindings->clear();
  opt_dims->clear();
  for (const Binding& binding : metadata.bindings) {
    bindings->push_back(provider_binding(binding));
    const Dims& best = binding.is_dynamic() ? binding.opt_shape : binding.shape;
    std::copy(best.begin(), best.end(), opt_dims->emplace_back().begin());
  }
  trt_et_engine_request request{};
  request.builder = metadata.builder.c_str();
  request.library_version = metadata.library_version.c_str();
  request.device = device;
  request.bytes = blob.engine;
  request.size = blob.engine_size;
  request.bindings = bindings->data();
  request.binding_count = bindings->size();
  request.weight_streaming_budget = options.weight_streaming_budget.value_or(TRT_ET_NO_BUDGET);
  request.sha256 = metadata.sha256.c_str();
  request.gpu = "";
  request.runtime_cache = options.runtime_cache.c_str();
  request.plugin_libraries = options.plugin_libraries.c_str();
  request.dla_core = options.dla_core;
  request.engine_host_code = options.engine_host_code ? 1 : 0;
  request.network = metadata.network.c_str();
  static_assert(sizeof(OptDims::value_type) == sizeof *request.opt_dims);
  request.opt_dims = reinterpret_cast<const int64_t (*)[TRT_ET_MAX_RANK]>(opt_dims->data());
  request.engine_folder = options.engine_folder.c_str();
  request.build = options.build ? 1 : 0;
  request.report_build = build_progress();
  return request;
}

Engine::~Engine() {
  if (engine_ == nullptr) return;
  provider_.free_engine(engine_);
  --g_live;
}

Status Engine::load(const trt_et_engine_provider& provider, const Blob& blob,
                    const trt_et_engine_request& request, std::shared_ptr<Engine>* engine) {
  const auto create = [&](std::shared_ptr<Engine>* created) -> Status {
    // Its owner first: with no memory for that, nothing is loaded that nobody frees.
    const std::shared_ptr<Engine> owner(new Engine(provider, request.size));
    TRT_ET_TRY(check(provider, provider.load(&request, &owner->engine_), "load"));
    ++g_live;
    ++g_loads;
    note_library_of(provider);
    *created = owner;
    return {};
  };
  if (blob.metadata.sha256.empty()) return create(engine);
  const auto slot =
      immortal<Slots>().find(key_of(provider, blob, request), std::make_shared<Slot>());
  const std::lock_guard<std::mutex> lock(slot->loading);
  *engine = slot->engine.lock();
  if (*engine != nullptr) return {};
  TRT_ET_TRY(create(engine));
  if ((*engine)->keeps_bytes()) return {};
  (*engine)->slot_ = slot;
  slot->engine = *engine;
  return {};
}

std::shared_ptr<Engine> Engine::find(const trt_et_engine_provider& provider, const Blob& blob,
                                     const trt_et_engine_request& request) {
  if (blob.metadata.sha256.empty()) return nullptr;
  const auto slot = immortal<Slots>().find(key_of(provider, blob, request), nullptr);
  if (slot == nullptr) return nullptr;
  const std::lock_guard<std::mutex> lock(slot->loading);
  return slot->engine.lock();
}

Status Engine::describe(size_t index, trt_et_binding* out) const {
  return check(provider_, provider_.describe(engine_, index, out), "describe");
}

Status Engine::memory_size(size_t* bytes) const {
  return check(provider_, provider_.memory_size(engine_, bytes), "memory_size");
}

Status Context::create(const Engine& engine, uint32_t flags, std::unique_ptr<Context>* context) {
  const trt_et_engine_provider& provider = engine.provider_;
  std::unique_ptr<Context> owner(new Context(provider));
  TRT_ET_TRY(check(provider, provider.create_context(engine.engine_, flags, &owner->context_),
                   "create_context"));
  *context = std::move(owner);
  return {};
}

Context::~Context() {
  if (context_ != nullptr) provider_.free_context(context_);
}

Status Context::set_profile(int32_t profile) {
  if (provider_.set_profile == nullptr) {
    return fail(Error::NotSupported, "a %s engine has no optimization profiles", provider_.name);
  }
  return call(provider_.set_profile, "set_profile", profile);
}

int Context::profile() const {
  int32_t profile = -1;
  const bool told = provider_.profile != nullptr && provider_.profile(context_, &profile) == 0;
  return told ? profile : -1;
}

}  // namespace trt_et
