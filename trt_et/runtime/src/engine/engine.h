// A loaded engine and its execution context, owned, over whatever provider loaded it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "blob/blob.h"
#include "common/engine_provider.h"
#include "common/status.h"
#include "options.h"
#include "trt_et/runtime.h"

namespace trt_et {

// Finds the provider for an engine on this machine, or says why there is none: by the blob's
// builder and library version. A network is built by TensorRT 11, else 10, else TensorRT-RTX.
Status find_provider(const Blob& blob, const trt_et_engine_request& request,
                     const trt_et_engine_provider** provider);

// Turns a provider's code and text into a Status. `what` is the function that was called.
Status check(const trt_et_engine_provider& provider, int code, const char* what);

// The serialized engine of a network.
struct BuiltEngine {
  const void* bytes = nullptr;
  size_t size = 0;
  const char* file = "";  // that it was found in; "": it was built now
  std::unique_ptr<void, void (*)(void*)> owner{nullptr, nullptr};
};
Status build_engine(const trt_et_engine_provider& provider, const trt_et_engine_request& request,
                    BuiltEngine* built);

// See trt_et_save_kernels: of the provider libraries that are open.
void save_kernels();

// "10.3.0.26", which TensorRT and TensorRT-RTX write into an engine's first bytes; empty if these
// are no engine's. TensorRT-RTX's major is 1.
std::string plan_version(const void* engine, size_t size);

using OptDims = std::vector<std::array<int64_t, TRT_ET_MAX_RANK>>;

// What is asked of a provider; `bindings` and `opt_dims` are filled, and must live as long as the
// request is used. The caller fills in what a network has besides, and the GPU.
trt_et_engine_request make_request(const Blob& blob, int device, const LoadOptions& options,
                                   std::vector<trt_et_binding>* bindings, OptDims* opt_dims);

class Engine {
 public:
  // Every delegate that loads the same engine onto the same GPU with the same options gets the same
  // object: engines that their blob names by sha256, and that do not keep the blob's bytes. The
  // last owner frees it. Thread-safe; the device must be current, there and in the destructor.
  static Status load(const trt_et_engine_provider& provider, const Blob& blob,
                     const trt_et_engine_request& request, std::shared_ptr<Engine>* engine);
  // The engine that load() would share; null if there is none now.
  static std::shared_ptr<Engine> find(const trt_et_engine_provider& provider, const Blob& blob,
                                      const trt_et_engine_request& request);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  const trt_et_engine_provider& provider() const { return provider_; }
  size_t bytes() const { return bytes_; }  // when serialized

  // Whether the blob's bytes must stay as long as this object.
  bool keeps_bytes() const { return provider_.keeps_bytes(engine_) != 0; }

  // Bytes of scratch memory of a context; only where the provider can tell.
  Status memory_size(size_t* bytes) const;

  Status describe(size_t index, trt_et_binding* out) const;

 private:
  friend class Context;
  Engine(const trt_et_engine_provider& provider, size_t bytes)
      : provider_(provider), bytes_(bytes) {}

  const trt_et_engine_provider& provider_;
  const size_t bytes_;
  void* engine_ = nullptr;
  std::shared_ptr<void> slot_;  // where other loads find it
};

// Engines that are loaded now, and how often a provider has loaded one.
uint64_t live_engines();
uint64_t engine_loads();

// Used by one thread at a time; must not outlive its engine.
class Context {
 public:
  static Status create(const Engine& engine, uint32_t flags, std::unique_ptr<Context>* context);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  // The steps of engine_provider.h.
  Status set_input_shape(size_t index, const int64_t* dims, int32_t rank) {
    return call(provider_.set_input_shape, "set_input_shape", index, dims, rank);
  }
  Status prepare(void* stream) { return call(provider_.prepare, "prepare", stream); }
  // A rank of -1: known only after the run.
  Status output_shape(size_t index, int64_t* dims, int32_t* rank) {
    return call(provider_.output_shape, "output_shape", index, dims, rank);
  }
  Status set_address(size_t index, void* address, size_t capacity) {
    return call(provider_.set_address, "set_address", index, address, capacity);
  }
  Status enqueue(void* stream) { return call(provider_.enqueue, "enqueue", stream); }
  // Whether it can report the times of its layers; see engine_provider.h.
  bool can_profile_layers() const { return provider_.profile_layers != nullptr; }
  Status profile_layers(void (*report)(void* user, const char* layer, float ms), void* user) {
    return call(provider_.profile_layers, "profile_layers", report, user);
  }
  // A failure says why a run cannot be captured into a CUDA graph.
  Status check_capture(void* stream) {
    if (provider_.check_capture == nullptr) return {};
    return call(provider_.check_capture, "check_capture", stream);
  }
  // Uses this optimization profile and no other.
  Status set_profile(int32_t profile);
  // The one in use; -1 where the provider does not tell.
  int profile() const;
  // Only of a context with user_memory.
  Status set_memory(void* memory, size_t bytes) {
    return call(provider_.set_memory, "set_memory", memory, bytes);
  }

 private:
  explicit Context(const trt_et_engine_provider& provider) : provider_(provider) {}

  template <typename... Arguments>
  Status call(int (*function)(void*, Arguments...), const char* what, Arguments... arguments) {
    return check(provider_, function(context_, arguments...), what);
  }

  const trt_et_engine_provider& provider_;
  void* context_ = nullptr;
};

}  // namespace trt_et
