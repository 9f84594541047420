// What the simulated GPUs offer to a double of TensorRT, for tests. A library that
// TRT_ET_TENSORRT_LIBRARY names, and that has the symbol below, may run on simulated GPUs; the real
// TensorRT, which has not, may not.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The functions return 0 or an ExecuTorch error code.
typedef struct trt_et_sim_services {
  // Every call of the double begins here, so that trt_et_sim_fail_after can make it fail.
  int (*call)(const char* what);
  int (*current_device)(int* device);
  int (*allocate)(size_t size, void** pointer);
  int (*release)(void* pointer);
  // Whether [pointer, +size] is live memory of a device.
  int (*check)(const void* pointer, size_t size, int device);
  // Queues a function on a stream; it may run any number of times (in a graph) before `drop`.
  int (*launch)(void* stream, int (*run)(void*), void (*drop)(void*), void* argument);
  // Between +1 and -1 the calling thread's heap allocations are the double's, not the delegate's.
  void (*inside)(int change);
} trt_et_sim_services;

#define TRT_ET_FAKE_ATTACH "trt_et_fake_tensorrt_attach"
typedef void (*trt_et_fake_attach_function)(const trt_et_sim_services* services);

#ifdef __cplusplus
}
#endif
