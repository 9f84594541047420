// A loaded engine and its execution context, owned, over whatever provider loaded it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../include/trt_et/engine_provider.h"
#include "blob.h"
#include "status.h"

namespace trt_et {

// Finds the provider for an engine on this machine, or says why there is none.
// Providers for TensorRT libraries are to be looked up here, by builder and version.
Status find_provider(const Blob& blob, int device, const trt_et_engine_provider** provider);

// The provider of reference engines, which is built in.
const trt_et_engine_provider& reference_provider();

// What a binding of a blob means to a provider.
trt_et_binding provider_binding(const Binding& binding);

class Engine {
 public:
  static Status load(const trt_et_engine_provider& provider, const Blob& blob, int device,
                     std::unique_ptr<Engine>* engine);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  // Whether the blob's bytes must stay as long as this object.
  bool keeps_bytes() const { return provider_.keeps_bytes(engine_) != 0; }

  Status describe(size_t index, trt_et_binding* out) const;

 private:
  friend class Context;
  Engine(const trt_et_engine_provider& provider, void* engine)
      : provider_(provider), engine_(engine) {}

  const trt_et_engine_provider& provider_;
  void* const engine_;
};

// Used by one thread at a time; must not outlive its engine.
class Context {
 public:
  static Status create(const Engine& engine, std::unique_ptr<Context>* context);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  Status bind(size_t index, void* address, const int64_t* dims, int32_t rank);
  // A rank of -1: known only after the run.
  Status output_shape(size_t index, int64_t* dims, int32_t* rank);
  Status enqueue(void* stream);

 private:
  Context(const trt_et_engine_provider& provider, void* context)
      : provider_(provider), context_(context) {}

  const trt_et_engine_provider& provider_;
  void* const context_;
};

}  // namespace trt_et
