// The table through which the delegate knows engines: a small C ABI, so that a provider is a
// library of its own: one per TensorRT major, and one for reference engines on simulated GPUs.
//
// It is internal: providers and plugin are of one version of trt-et, which they compare. The
// TensorRT providers are libraries with this table, and not parts of the plugin, because each is
// compiled against another interface of TensorRT.
//
// Every function returns 0 or an ExecuTorch error code (executorch/runtime/core/error.h), and then
// last_error() gives its text on the same thread. Nothing may throw. A binding is always named by
// its index in the request's list. The engine's device is current in every call that gets an
// engine or a context. Threads: an engine may be used by several threads; a context by one at a
// time.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRT_ET_PROVIDER_ABI 11
#define TRT_ET_MAX_RANK 16

// One input or output. `dtype` is an ExecuTorch ScalarType, or -1 where it is not known. A
// dimension of -1 is dynamic. `rank` is -1 where the shape is not known.
typedef struct trt_et_binding {
  const char* name;
  int32_t is_input;
  int32_t dtype;
  int32_t rank;
  int32_t alias_of;  // binding whose memory this output shares; -1: none
  int64_t dims[TRT_ET_MAX_RANK];
  // What an input's dimensions may be, over all optimization profiles together. As dims where that
  // is not dynamic.
  int64_t min_dims[TRT_ET_MAX_RANK];
  int64_t max_dims[TRT_ET_MAX_RANK];
} trt_et_binding;

// Named data of the program. `bytes` is null until read_weights() has read it.
typedef struct trt_et_weight {
  const char* name;
  const void* bytes;
  size_t size;
} trt_et_weight;

#define TRT_ET_NO_BUDGET INT64_MIN
// The budget of a percentage, 0 to 100, of the engine's streamable weights.
#define TRT_ET_PERCENT_BUDGET(percentage) (-2 - (int64_t)(percentage))

// What is to be loaded. Everything in it is only valid during the call that it is given to, except
// that the engine's bytes live as long as the engine when keeps_bytes() says so.
typedef struct trt_et_engine_request {
  const char* builder;          // "" where a foreign blob does not say
  const char* library_version;  // likewise
  int32_t device;
  const void* bytes;
  size_t size;
  const trt_et_binding* bindings;
  size_t binding_count;
  // Bytes of GPU memory for weights; -1: as TensorRT sees fit; TRT_ET_NO_BUDGET: not asked for; or
  // a TRT_ET_PERCENT_BUDGET.
  int64_t weight_streaming_budget;
  const char* sha256;            // of the engine; "" where the blob does not say
  const char* gpu;               // name of the GPU that it goes to
  const char* runtime_cache;     // folder for kernels that the library compiles; "": its own; "off"
  const char* plugin_libraries;  // paths of libraries with TensorRT plugins, separated by ":"
  int32_t dla_core;              // -1: not asked for
  int32_t engine_host_code;      // 1: code that the engine holds may run on the host

  // Of a network: with the builder "onnx", the bytes are an ONNX model, which the provider builds
  // into an engine. Initializers with external data name one of the weights as their location.
  const char* network;     // the blob's metadata "network" as JSON; "" without one
  trt_et_weight* weights;  // sorted by name
  size_t weight_count;
  // Reads the bytes of all weights, once; they are valid during the call of load(). Returns null,
  // or why they cannot be read, which is valid until then, too.
  const char* (*read_weights)(const struct trt_et_engine_request* request);
  void* reader;                                // the plugin's, for read_weights
  const int64_t (*opt_dims)[TRT_ET_MAX_RANK];  // of each binding; as dims where not dynamic
  int32_t gpu_major, gpu_minor;                // its compute capability
  const char* engine_folder;                   // for built engines; "": the provider's own; "off"
  int32_t build;                               // 0: an engine that is not in the folder is refused
  // Null, or to be called while an engine is built or another build is waited for, on any thread:
  // what is being done, and how far it is; 0 steps: not known. Building ends as soon as it can when
  // this returns 0. A null phase: this process builds another engine, and tells of that.
  int (*report_build)(const char* phase, int32_t step, int32_t steps);
  // Null, or the owner of what build() has found in a file and load() has refused: the file is
  // removed, and not found again.
  void* refused;
} trt_et_engine_request;

// Flags of a provider.
#define TRT_ET_PROVIDER_GRAPHS 1u       // enqueue() may be captured into a CUDA graph
#define TRT_ET_PROVIDER_USER_MEMORY 2u  // static engines need TRT_ET_CONTEXT_USER_MEMORY

// Flags of create_context().
#define TRT_ET_CONTEXT_USER_MEMORY 1u  // its scratch memory comes through set_memory()
#define TRT_ET_CONTEXT_GRAPHS 2u       // the library may record CUDA graphs of its own

typedef struct trt_et_engine_provider {
  uint32_t flags;      // TRT_ET_PROVIDER_*
  uint32_t alignment;  // of every address that it is given
  const char* name;    // for messages
  // Whether it can load this engine on this machine. Looks at no engine byte. NotFound: its library
  // is not here, and another provider may be asked.
  int (*probe)(const trt_et_engine_request* request);
  int (*load)(const trt_et_engine_request* request, void** engine);
  int (*keeps_bytes)(void* engine);
  // What the engine itself says of a binding.
  int (*describe)(void* engine, size_t index, trt_et_binding* out);
  void (*free_engine)(void* engine);
  int (*create_context)(void* engine, uint32_t flags, void** context);
  void (*free_context)(void* context);

  // The steps of a run, in this order; what has not changed since the last run is left out.
  int (*set_input_shape)(void* context, size_t index, const int64_t* dims, int32_t rank);
  // After a shape has changed: takes the smallest optimization profile that fits, or refuses the
  // shapes. May queue work on the stream.
  int (*prepare)(void* context, void* stream);
  // Shape of an output for these inputs; rank -1: known only after the engine has run.
  int (*output_shape)(void* context, size_t index, int64_t* dims, int32_t* rank);
  int (*set_address)(void* context, size_t index, void* address, size_t capacity);
  // Queues one run on a stream of the engine's device, with the bindings as they are now.
  int (*enqueue)(void* context, void* stream);
  const char* (*last_error)(void);

  // Optional: null where a provider has no such thing.
  // Bytes of scratch memory that a context with TRT_ET_CONTEXT_USER_MEMORY needs.
  int (*memory_size)(void* engine, size_t* bytes);
  int (*set_memory)(void* context, void* memory, size_t bytes);
  // Reports every layer's time of the runs that follow, on the thread that enqueues, which then
  // waits. A null `report` ends it.
  int (*profile_layers)(void* context, void (*report)(void* user, const char* layer, float ms),
                        void* user);
  // Whether enqueue() may be captured with the bindings as they are now; its failure says why not.
  // Asked before each capture, where the provider has TRT_ET_PROVIDER_GRAPHS.
  int (*check_capture)(void* context, void* stream);
  // Writes the kernels that the library has compiled for engines that are loaded.
  int (*save_kernels)(void);
  // Uses this optimization profile and no other from the next prepare() on.
  int (*set_profile)(void* context, int32_t profile);
  // The optimization profile of the last prepare().
  int (*profile)(void* context, int32_t* profile);
  // Builds the engine of a network, or finds it among those that it has built. load() is then asked
  // with the engine's bytes instead of the model's. They are valid until free_built() gets `owner`.
  // Null where load() takes the model itself.
  int (*build)(const trt_et_engine_request* request, const void** bytes, size_t* size,
               void** owner);
  void (*free_built)(void* owner);
  // The file that build() has found the engine in; "" if it has been built now. It lives as long as
  // `owner`.
  const char* (*kept_in)(void* owner);
} trt_et_engine_provider;

// Levels of trt_et_host.log.
#define TRT_ET_LOG_ERROR 0
#define TRT_ET_LOG_WARNING 1
#define TRT_ET_LOG_INFO 2
#define TRT_ET_LOG_DEBUG 3
#define TRT_ET_LOG_NOTICE 4  // what a user waits for; shown at once, so only outside of locks
#define TRT_ET_LOG_OWN 5     // the provider's own words, where the others are TensorRT's

// What the plugin gives to a provider library when it opens it. Lives until the process ends.
typedef struct trt_et_host {
  uint32_t abi;         // TRT_ET_PROVIDER_ABI, of the lines up to the version
  const char* version;  // of trt-et
  void (*log)(int level, const char* text);
  const char* site_packages;  // folder of the Python packages beside ExecuTorch's; "" if unknown
  // A variable of the environment as the plugin was loaded with it; null: not set.
  const char* (*variable)(const char* name);
} trt_et_host;

// The one symbol of a provider library, libtrt_et_tensorrt_<which>.so: its table, or null when it
// was made for another trt-et. The NVIDIA driver has been asked before; TensorRT is not touched
// here.
typedef const trt_et_engine_provider* (*trt_et_open_provider_function)(const trt_et_host* host);
#define TRT_ET_OPEN_PROVIDER "trt_et_open_provider"

#ifdef __cplusplus
}
#endif
