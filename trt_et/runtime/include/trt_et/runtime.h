// The C interface of the plugin library, libtrt_et_backend.so.
//
// Loading the library registers the backend TRT_ET_BACKEND_NAME with the ExecuTorch runtime in the
// process and, where nothing else in the process registers one, a CUDA DeviceAllocator. Everything
// here is thread-safe and throws nothing. ExecuTorch's Module and Method are not thread-safe: give
// each thread a Module of its own; engines are shared.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TRT_ET_EXPORT __attribute__((visibility("default")))
#else
#define TRT_ET_EXPORT
#endif

// What a .pte calls our delegates; for ExecuTorch's set_option and get_option.
#define TRT_ET_BACKEND_NAME "TensorRTBackend"

#ifdef __cplusplus
extern "C" {
#endif

// "<plugin version> (executorch <version that it was compiled against>)".
TRT_ET_EXPORT const char* trt_et_version(void);

// Writes one JSON object: {"backend": bool, "allocator": bool, "cuda": mode, "problem": text}.
// "backend" and "allocator" say whether ours are the registered ones; "cuda" is "real",
// "simulated:N", or "" as long as nothing has used it; "problem" says why ours is not registered,
// or why that mode has no GPU, and is empty when all is well. Returns the length of the whole text;
// at most `capacity` bytes are written, always terminated.
TRT_ET_EXPORT size_t trt_et_status(char* out, size_t capacity);

// Registers our CUDA DeviceAllocator if there is none, and returns 1 if ours is the registered one,
// else 0. Loading the library does that, unless ExecuTorch's CUDA backend is part of the program or
// loaded: it registers one, too, and ExecuTorch ends the process at a second allocator. A program
// with an allocator of its own registers it before it opens this library.
TRT_ET_EXPORT int trt_et_register_allocator(void);

// 1 if at least one GPU (real, or simulated when asked for) can be used, else 0. This is a first
// use: it fixes the choice of trt_et_choose_cuda.
TRT_ET_EXPORT int trt_et_available(void);

// Number of GPUs; -1 on failure, and trt_et_last_error says why.
TRT_ET_EXPORT int trt_et_device_count(void);

// The GPU on which our allocator has planned the memory that holds this address; -1: none. It is
// not the GPU in the program if the user moves programs to another one.
TRT_ET_EXPORT int trt_et_planned_device(const void* pointer);

// Why the last call of this thread that can fail did so: of this interface, of the backend, or of
// the allocator; "" if it succeeded. Also why ExecuTorch refused a file or an input, if it has
// logged that. The pointer stays valid until this thread's next call.
TRT_ET_EXPORT const char* trt_et_last_error(void);

// Sets an option (docs/native.md) for all loads from now on, as the variable TRT_ET_<NAME> does:
// the environment is read once, when this library is loaded. A null or empty text takes it back.
// Returns 0, or -1.
TRT_ET_EXPORT int trt_et_set_option(const char* name, const char* text);

// Chooses the CUDA implementation instead of the environment variable TRT_ET_CUDA: "real",
// "simulated:N" with N in 1..16, or "auto:N", which is "real" where there is a GPU that can be
// used, and "simulated:N" elsewhere; without ":N", N is 1. If nothing is chosen and the variable is
// not set, it is "real", and "simulated:16" after a reference engine was loaded on a machine
// without a GPU. Returns 0, or -1 when the mode is unknown or another one is already in use; one
// that found no GPU is not.
TRT_ET_EXPORT int trt_et_choose_cuda(const char* mode);

// Reads a counter: "engines" (loaded now), "engine_loads", and of simulated GPUs "mallocs",
// "frees", "copies_h2d", "copies_d2h", "copies_d2d", "copies_peer", "bytes_h2d" and so on,
// "synchronizations", "launches", "calls", "captures", "graph_launches", "fake_calls" (of a fake
// TensorRT), "live_graphs", "live_events", "live_streams", "kept_streams" (with work left),
// "live_bytes", "live_bytes:N" (of device N). Returns 0, or -1 when there is no such: GPUs that are
// not simulated count nothing.
TRT_ET_EXPORT int trt_et_counter(const char* name, uint64_t* value);

// Writes a JSON array with an object for each engine of a loaded method: "device", "engine" (the
// kind of library), "engine_bytes" (of the serialized engine, about the memory of its weights,
// which methods that share an engine have once), "profile" (the optimization profile of the last
// call; null if unknown), "contexts", "graph_launches", "no_graph" (why runs use no CUDA graph; ""
// if they may), "staging_bytes" (GPU memory for tensors that the engine cannot use in place) and
// "scratch_bytes_per_context" (null if unknown). Waits for calls that are going on. Returns the
// length of the whole text; at most `capacity` bytes are written, always terminated.
TRT_ET_EXPORT size_t trt_et_describe_engines(char* out, size_t capacity);

// From now on the calling thread's work on `device` goes to this stream instead of one of ours, or
// to a default stream (cudaStreamLegacy, cudaStreamPerThread); null: ours again. The caller keeps
// it until then, and waits for what it needs on the host. Returns 0, or -1.
TRT_ET_EXPORT int trt_et_use_stream(int device, void* stream);

// Writes the kernels that TensorRT-RTX has compiled for the engines that are loaded now into its
// kernel cache (the load option runtime_cache). Without this call that happens seconds after shapes
// have changed, and when an engine is freed. Returns 0, or -1.
TRT_ET_EXPORT int trt_et_save_kernels(void);

// Is told, on any thread, while TensorRT builds an engine of an ONNX network, or another build is
// waited for: what it is doing, the step, and how many there are; 0 steps if that is not known.
// Returns 1, or 0 to end the build or the wait, which fails the load. Must not throw, and must not
// load a program.
typedef int (*trt_et_build_progress)(const char* phase, int32_t step, int32_t steps);
// Calls this function in each build that begins from now on; null: none.
TRT_ET_EXPORT void trt_et_set_build_progress(trt_et_build_progress progress);

// Finds named data of a program; returns 0, or -1 if there is none of this key. The bytes must stay
// valid until trt_et_build_engine returns.
typedef int (*trt_et_find_data)(void* user, const char* key, const void** bytes, size_t* size);
// Takes a built engine, whose bytes are valid during this call. `facts` is one JSON object: the
// texts "builder", "library_version", "gpu_name", "compute_capability" and "target_platform" for
// the engine's blob. Returns 0, or -1, which fails the call.
typedef int (*trt_et_take_engine)(void* user, const char* facts, const void* bytes, size_t size);
// Builds the engine of a network, which is a delegate's bytes (docs/blob.md), as a load of its
// program would: with the same options of the process, GPU and folder of built engines. Returns 0,
// or -1.
TRT_ET_EXPORT int trt_et_build_engine(const void* blob, size_t size, trt_et_find_data find,
                                      void* user, trt_et_take_engine take);

// Gets a line of the plugin's log: `level` is 0 for an error, 1 for information, and 2 for what
// TRT_ET_LOG=debug adds. May be called on any thread, and must not throw.
typedef void (*trt_et_log_function)(int level, const char* text);
// Sends the log to this function from now on, and no longer to ExecuTorch's log; null: back.
TRT_ET_EXPORT void trt_et_set_log_function(trt_et_log_function function);

// The stream on which the calling thread's work on `device` is queued: ours, or the one of
// trt_et_use_stream or of a CallerStreamGuard. What the caller queues on it comes after the runs
// before it. Ours lives as long as the thread. Returns 0, or -1.
TRT_ET_EXPORT int trt_et_get_stream(int device, void** stream);

// Waits until the calling thread's work on `device` is complete; -1: on every GPU on which it has a
// stream. Returns 0, or -1.
TRT_ET_EXPORT int trt_et_wait(int device);

// Records a cudaEvent_t of the caller's after the calling thread's work on `device`. Returns 0, or
// -1.
TRT_ET_EXPORT int trt_et_record(int device, void* event);

// Returns 1 and the stream of the calling thread's innermost executorch::extension::cuda::
// CallerStreamGuard, or 0 where there is none.
typedef int (*trt_et_caller_stream_source)(void** stream);
// Tells the plugin where a CallerStreamGuard's stream is found. It finds ExecuTorch's CUDA
// extension by itself if that is a shared library that was loaded before; otherwise the program
// hands over a function that calls getCallerStream(). Null: by itself again.
TRT_ET_EXPORT void trt_et_set_caller_stream_source(trt_et_caller_stream_source source);

#ifdef __cplusplus
}
#endif
