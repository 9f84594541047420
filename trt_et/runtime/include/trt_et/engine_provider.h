// The table through which the delegate knows engines: a small C ABI, so that a provider can be a
// library of its own (one per TensorRT major), built in (the reference engine), or Python.
//
// Every function returns 0 or an ExecuTorch error code (executorch/runtime/core/error.h), and then
// last_error() gives its text on the same thread. Nothing may throw. A binding is always named by
// its index in the request's list. Threads: an engine may be used by several threads; a context by
// one at a time.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRT_ET_PROVIDER_ABI 1
#define TRT_ET_MAX_RANK 16

// One input or output. `dtype` is an ExecuTorch ScalarType, or -1 where it is not known. A
// dimension of -1 is dynamic. `rank` is -1 where the shape is not known.
typedef struct trt_et_binding {
  const char* name;
  int32_t is_input;
  int32_t dtype;
  int32_t rank;
  int64_t dims[TRT_ET_MAX_RANK];
} trt_et_binding;

// What is to be loaded. Everything in it is only valid during the call that it is given to, except
// that the engine's bytes live as long as the engine when keeps_bytes() says so.
typedef struct trt_et_engine_request {
  char magic[4];
  const char* builder;
  const char* library_version;
  int32_t device;
  const void* bytes;
  size_t size;
  const trt_et_binding* bindings;
  size_t binding_count;
} trt_et_engine_request;

typedef struct trt_et_engine_provider {
  uint32_t abi;      // TRT_ET_PROVIDER_ABI
  const char* name;  // for messages
  // Whether it can load this engine on this machine. Looks at no engine byte.
  int (*probe)(const trt_et_engine_request* request);
  int (*load)(const trt_et_engine_request* request, void** engine);
  int (*keeps_bytes)(void* engine);
  // What the engine itself says of a binding: dtype and dims.
  int (*describe)(void* engine, size_t index, trt_et_binding* out);
  void (*free_engine)(void* engine);
  int (*create_context)(void* engine, void** context);
  void (*free_context)(void* context);
  // Sets a binding's device address and shape. Of an output, `dims` is what the memory has room
  // for.
  int (*bind)(void* context, size_t index, void* address, const int64_t* dims, int32_t rank);
  // Shape of an output for the bound inputs; rank -1: known only after the engine has run.
  int (*output_shape)(void* context, size_t index, int64_t* dims, int32_t* rank);
  // Queues one run on a stream of the engine's device, with the bindings as they are now.
  int (*enqueue)(void* context, void* stream);
  const char* (*last_error)(void);
} trt_et_engine_provider;

#ifdef __cplusplus
}
#endif
