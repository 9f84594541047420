// The C interface of libtrt_et_simulation.so: for tests and tools. The plugin opens that library
// when TRT_ET_CUDA or trt_et_choose_cuda() asks for simulated GPUs, and programs use those through
// runtime.h, as they use real ones.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trt_et/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

// Makes the n-th simulated CUDA call from now (1: the next one) fail, once. 0 switches it off.
// Returns what was left of the count before: 0 if that failure has happened. The environment
// variable TRT_ET_SIM_FAIL_AFTER does the same from the start.
TRT_ET_EXPORT uint64_t trt_et_sim_fail_after(uint64_t n);

// From then on, whenever a call has failed so, the n-th call after it fails as well. 1: a GPU that
// is gone. 0, as it is at first: no other. Lasts until trt_et_sim_fail_after(0).
TRT_ET_EXPORT void trt_et_sim_fail_again(uint64_t n);

// What the simulated GPUs offer to a fake TensorRT, for tests. A library that
// TRT_ET_TENSORRT_LIBRARY names, and that has the symbol below, may run on simulated GPUs; the real
// TensorRT, which has not, may not. The functions return 0 or an ExecuTorch error code.
typedef struct trt_et_sim_services {
  // Every call of the fake begins here, so that trt_et_sim_fail_after can make it fail.
  int (*call)(const char* what);
  int (*current_device)(int* device);
  int (*allocate)(size_t size, void** pointer);
  int (*release)(void* pointer);
  // Whether [pointer, +size] is live memory of a device.
  int (*check)(const void* pointer, size_t size, int device);
  // Queues a function on a stream; it may run any number of times (in a graph) before `drop`.
  int (*launch)(void* stream, int (*run)(void*), void (*drop)(void*), void* argument);
  // Between +1 and -1 the calling thread's heap allocations are the fake's, not the delegate's.
  void (*inside)(int change);
} trt_et_sim_services;

#define TRT_ET_FAKE_ATTACH "trt_et_fake_tensorrt_attach"
typedef void (*trt_et_fake_attach_function)(const trt_et_sim_services* services);

#ifdef __cplusplus
}
#endif
