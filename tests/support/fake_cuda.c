/* A CUDA driver and runtime of two GPUs on host memory, enough to walk the path of real CUDA. With
   -DFAKE_RECORDS, for one thread: has graphs, and tells what it was asked for. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __thread int current;

#ifdef FAKE_RECORDS
static char calls[2048];
static size_t used;

static void record(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(calls + used, sizeof calls - used, format, arguments);
  va_end(arguments);
  if (length < 0 || (size_t)length >= sizeof calls - used) abort();
  used += (size_t)length;
}

/* The calls since the last time, a line each. */
const char* fake_cuda_calls(void) {
  static char taken[sizeof calls];
  memcpy(taken, calls, sizeof calls);
  used = 0;
  calls[0] = 0;
  return taken;
}

static char captured, executable;
int cudaStreamBeginCapture(void* s, int mode) {
  record("begin capture of %p, mode %d\n", s, mode);
  return 0;
}
int cudaStreamEndCapture(void* s, void** graph) {
  record("end capture of %p\n", s);
  *graph = &captured;
  return 0;
}
int cudaGraphInstantiateWithFlags(void** graph, void* from, unsigned long long flags) {
  record("instantiate, flags %llu\n", flags);
  *graph = &executable;
  return from == &captured ? 0 : 1;
}
int cudaGraphDestroy(void* graph) {
  record("destroy graph\n");
  return graph == &captured ? 0 : 1;
}
int cudaGraphLaunch(void* graph, void* s) {
  record("launch on %p\n", s);
  return graph == &executable ? 0 : 1;
}
int cudaGraphExecDestroy(void* graph) {
  record("destroy executable\n");
  return graph == &executable ? 0 : 1;
}
#else
static void record(const char* format, ...) { (void)format; }
#endif

int cuInit(unsigned flags) {
  (void)flags;
  return getenv("FAKE_CUDA_NO_GPU") ? 100 : 0;
}
#ifndef FAKE_RUNTIME
#define FAKE_RUNTIME 12000
#endif
int cuDriverGetVersion(int* version) {
  const char* named = getenv("FAKE_DRIVER_VERSION");
  *version = named ? atoi(named) : 13000;
  return 0;
}
int cudaRuntimeGetVersion(int* version) {
  *version = FAKE_RUNTIME;
  return 0;
}
int cuDeviceGet(int* handle, int index) {
  *handle = index;
  return 0;
}
int cuDeviceGetName(char* name, int size, int handle) {
  (void)handle;
  strncpy(name, "fake", size);
  return 0;
}
int cudaGetDeviceCount(int* count) {
  int driver = 0;
  cuDriverGetVersion(&driver);
  if (FAKE_RUNTIME / 1000 > driver / 1000) return 35;
  *count = 2;
  return 0;
}
int cudaGetDevice(int* device) {
  *device = current;
  return 0;
}
int cudaSetDevice(int device) {
  if (device < 0 || device > 1) return 101;
  current = device;
  return 0;
}
int cudaDeviceGetAttribute(int* value, int which, int device) {
  (void)device;
  *value = which;
  return 0;
}
int cudaMalloc(void** p, size_t n) {
  if (n > 1u << 30) return 2;
  *p = aligned_alloc(256, (n + 255) / 256 * 256); /* As CUDA promises. */
  return *p == NULL && n > 0 ? 2 : 0;
}
int cudaFree(void* p) {
  free(p);
  return 0;
}
int cudaHostAlloc(void** p, size_t n, unsigned f) {
  (void)f;
  *p = aligned_alloc(256, (n + 255) / 256 * 256); /* As CUDA promises. */
  return *p == NULL && n > 0 ? 2 : 0;
}
int cudaFreeHost(void* p) {
  free(p);
  return 0;
}
int cudaPointerGetAttributes(int* type_and_device, const void* p) {
  (void)p;
  type_and_device[0] = 2;
  type_and_device[1] = current;
  return 0;
}
int cudaMemcpyAsync(void* to, const void* from, size_t n, int kind, void* s) {
  record("copy %zu bytes, kind %d, on %p\n", n, kind, s);
  memcpy(to, from, n);
  return 0;
}
int cudaMemsetAsync(void* to, int value, size_t n, void* s) {
  record("set %zu bytes to %d on %p\n", n, value, s);
  memset(to, value, n);
  return 0;
}
int cudaMemcpyPeerAsync(void* to, int a, const void* from, int b, size_t n, void* s) {
  record("copy %zu bytes from %d to %d on %p\n", n, b, a, s);
  memcpy(to, from, n);
  return 0;
}
int cudaStreamCreateWithFlags(void** s, unsigned f) {
  *s = malloc(1);
  record("stream %p, flags %u\n", *s, f);
  return 0;
}
int cudaStreamDestroy(void* s) {
  record("destroy stream %p\n", s);
  free(s);
  return 0;
}
int cudaStreamSynchronize(void* s) {
  record("wait for stream %p\n", s);
  return 0;
}
int cudaStreamWaitEvent(void* s, void* e, unsigned f) {
  record("%p waits for %p, flags %u\n", s, e, f);
  return 0;
}
int cudaEventCreateWithFlags(void** e, unsigned f) {
  *e = malloc(1);
  record("event %p, flags %u\n", *e, f);
  return 0;
}
int cudaEventDestroy(void* e) {
  record("destroy event %p\n", e);
  free(e);
  return 0;
}
int cudaEventRecord(void* e, void* s) {
  record("record %p on %p\n", e, s);
  return 0;
}
int cudaEventSynchronize(void* e) {
  record("wait for event %p\n", e);
  return 0;
}
int cudaLaunchHostFunc(void* s, void (*f)(void*), void* p) {
  (void)s;
  f(p);
  return 0;
}
int cudaGetLastError(void) { return 0; }
const char* cudaGetErrorString(int code) { return code == 2 ? "out of memory" : "fake error"; }
