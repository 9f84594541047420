/* A CUDA driver and runtime of two GPUs on host memory, enough to walk the path of real CUDA. */
#include <stdlib.h>
#include <string.h>

static __thread int current;
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
  *p = malloc(n);
  return 0;
}
int cudaFree(void* p) {
  free(p);
  return 0;
}
int cudaHostAlloc(void** p, size_t n, unsigned f) {
  (void)f;
  *p = malloc(n);
  return 0;
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
  (void)kind;
  (void)s;
  memcpy(to, from, n);
  return 0;
}
int cudaMemsetAsync(void* to, int value, size_t n, void* s) {
  (void)s;
  memset(to, value, n);
  return 0;
}
int cudaMemcpyPeerAsync(void* to, int a, const void* from, int b, size_t n, void* s) {
  (void)a;
  (void)b;
  (void)s;
  memcpy(to, from, n);
  return 0;
}
int cudaStreamCreateWithFlags(void** s, unsigned f) {
  (void)f;
  *s = malloc(1);
  return 0;
}
int cudaStreamDestroy(void* s) {
  free(s);
  return 0;
}
int cudaStreamSynchronize(void* s) {
  (void)s;
  return 0;
}
int cudaStreamWaitEvent(void* s, void* e, unsigned f) {
  (void)s;
  (void)e;
  (void)f;
  return 0;
}
int cudaEventCreateWithFlags(void** e, unsigned f) {
  (void)f;
  *e = malloc(1);
  return 0;
}
int cudaEventDestroy(void* e) {
  free(e);
  return 0;
}
int cudaEventRecord(void* e, void* s) {
  (void)e;
  (void)s;
  return 0;
}
int cudaEventSynchronize(void* e) {
  (void)e;
  return 0;
}
int cudaLaunchHostFunc(void* s, void (*f)(void*), void* p) {
  (void)s;
  f(p);
  return 0;
}
int cudaGetLastError(void) { return 0; }
const char* cudaGetErrorString(int code) { return code == 2 ? "out of memory" : "fake error"; }
