/* A CUDA driver and runtime of two GPUs on host memory. Work is done when it is queued. It keeps these
   rules of CUDA 12 and later:
   - a call of the runtime that needs a context makes the primary one of the current GPU, and so does
     cudaSetDevice(); fake_cuda("primary:1") tells whether GPU 1 has one;
   - streams and events belong to the context that was current;
   - what cannot be captured ends the capture, and an event that a captured stream recorded can be
     waited for by nobody outside;
   - while the process ends, the driver goes before what was made earlier than it.
   With -DFAKE_RECORDS, for one thread: has graphs, and tells what it was asked for. */
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kGpus = 2, kDepth = 16 };
enum { kOutOfMemory = 2, kEnded = 4, kBadDevice = 101, kNoContext = 201, kBadHandle = 400 };
enum { kCaptureUnsupported = 900, kCaptureInvalidated = 901, kIsolation = 905, kCapturedEvent = 907 };

struct Context { int gpu; struct Context* part_of; /* of a green context: the primary one */ };
struct Stream { struct Context* context; int capturing, broken; };
struct Event { struct Context* context; int captured, recorded; };
struct Memory { char* begin; size_t size; int type, gpu; struct Memory* next; };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct Context primary[kGpus] = {{0, NULL}, {1, NULL}};
static struct Context green[kGpus] = {{0, &primary[0]}, {1, &primary[1]}};
static uint64_t is_primary_made[kGpus];
static uint64_t waits, calls, calls_after_end, graph_launches, graphs_outside;
static struct Context *captured_in, *executable_in; /* of the last graph */
static int starting, ended;
static struct Memory* memories;
static struct Stream legacy = {&primary[0], 0, 0};
static void* last_recorded;
static const char* failing = "";
static int major = 75;
static __thread int last_failure; /* of the runtime */
static __thread struct Context* stack[kDepth];
static __thread int depth;
static __thread struct Stream* capturing; /* by this thread, not in relaxed mode */

/* "primary:N", "starting" (cuInit has begun), "waits", "calls", "calls_after_end", "depth" of this thread's contexts, "graph_launches", those "graphs_outside" of
   the context of the stream that they were launched on, "last_recorded" stream. */
uint64_t fake_cuda(const char* what) {
  if (strncmp(what, "primary:", 8) == 0) return is_primary_made[atoi(what + 8) % kGpus];
  if (strcmp(what, "starting") == 0) return __atomic_load_n(&starting, __ATOMIC_ACQUIRE);
  if (strcmp(what, "waits") == 0) return waits;
  if (strcmp(what, "calls") == 0) return calls;
  if (strcmp(what, "calls_after_end") == 0) return calls_after_end;
  if (strcmp(what, "depth") == 0) return (uint64_t)depth;
  if (strcmp(what, "graph_launches") == 0) return graph_launches;
  if (strcmp(what, "graphs_outside") == 0) return graphs_outside;
  return (uint64_t)(uintptr_t)last_recorded;
}

/* Which calls fail from now on, and how: "cudaMalloc=2 cudaFree=700"; "all=700". The text is not copied. */
void fake_cuda_fail(const char* calls) { __atomic_store_n(&failing, calls, __ATOMIC_RELEASE); }
static int failure_of(const char* call) {
  const char* calls = __atomic_load_n(&failing, __ATOMIC_ACQUIRE);
  char name[64];
  int length = snprintf(name, sizeof name, "%s=", call);
  const char* found = strstr(calls, name);
  if (found != NULL) return atoi(found + length);
  found = strstr(calls, "all=");
  return found == NULL ? 0 : atoi(found + 4);
}
/* The first number of the GPUs' compute capability. */
void fake_cuda_major(int value) { major = value; }

static void end(void) { ended = 1; }
#define CALL(name)                                     \
  do {                                                 \
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);   \
    if (ended) {                                       \
      ++calls_after_end;                               \
      return kEnded;                                   \
    }                                                  \
    if (failure_of(name) != 0) {                       \
      if (strncmp(name, "cuda", 4) == 0) last_failure = failure_of(name); \
      return failure_of(name);                         \
    }                                                  \
  } while (0)
#define UP CALL(__func__)

#ifdef FAKE_RECORDS
enum { kHasGraphs = 1 };
static char lines[2048];
static size_t used;

static void record(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&mutex);
  int length = vsnprintf(lines + used, sizeof lines - used, format, arguments);
  va_end(arguments);
  if (length >= 0 && (size_t)length < sizeof lines - used) used += (size_t)length;
  pthread_mutex_unlock(&mutex);
}

/* The calls since the last time, a line each; no more than there is room for. */
const char* fake_cuda_calls(void) {
  static char taken[sizeof lines];
  memcpy(taken, lines, sizeof lines);
  used = 0;
  lines[0] = 0;
  return taken;
}
#else
enum { kHasGraphs = 0 };
static void record(const char* format, ...) { (void)format; }
#endif

static struct Context* make_primary(int gpu) {
  __atomic_store_n(&is_primary_made[gpu], 1, __ATOMIC_RELAXED);
  return &primary[gpu];
}

/* The current context, as a call of the runtime that needs one finds it. */
static struct Context* current(void) {
  if (depth == 0) stack[depth++] = make_primary(0);
  return stack[depth - 1];
}

static struct Stream* stream_of(void* handle) { return (size_t)handle <= 2 ? &legacy : handle; }

static int refused_in_capture(void) {
  if (capturing == NULL) return 0;
  capturing->broken = 1;
  return 1;
}

static void remember(void* begin, size_t size, int type) {
  struct Memory* made = malloc(sizeof *made);
  pthread_mutex_lock(&mutex);
  *made = (struct Memory){begin, size, type, current()->gpu, memories};
  memories = made;
  pthread_mutex_unlock(&mutex);
}

static void forget(void* begin) {
  pthread_mutex_lock(&mutex);
  for (struct Memory** at = &memories; *at != NULL; at = &(*at)->next) {
    if ((*at)->begin != begin) continue;
    struct Memory* gone = *at;
    *at = gone->next;
    free(gone);
    break;
  }
  pthread_mutex_unlock(&mutex);
  free(begin);
}

static int allocate(const char* call, void** p, size_t n, int type) {
  CALL(call);
  if (refused_in_capture()) return kCaptureUnsupported;
  if (n > 1u << 30) return kOutOfMemory;
  *p = aligned_alloc(256, (n + 255) / 256 * 256); /* As CUDA promises. */
  if (*p == NULL && n > 0) return kOutOfMemory;
  remember(*p, n, type);
  return 0;
}

int cuInit(unsigned flags) {
  (void)flags;
  static int done;
  if (!done++) atexit(end);
  __atomic_store_n(&starting, 1, __ATOMIC_RELEASE);
  if (getenv("FAKE_CUDA_SLOW")) usleep(300000);
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
  strncpy(name, "fake", (size_t)size);
  return 0;
}
int cuDevicePrimaryCtxGetState(int gpu, unsigned* flags, int* active) {
  *flags = 0;
  *active = (int)__atomic_load_n(&is_primary_made[gpu], __ATOMIC_RELAXED);
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int gpu) {
  UP;
  if (gpu < 0 || gpu >= kGpus) return kBadDevice;
  *context = make_primary(gpu);
  return 0;
}
int cuCtxCreate_v2(void** context, unsigned flags, int gpu) {
  UP;
  (void)flags;
  struct Context* made = calloc(1, sizeof *made);
  made->gpu = gpu;
  stack[depth++] = made;
  *context = made;
  return 0;
}
int cuCtxGetCurrent(void** context) {
  UP;
  *context = depth > 0 ? stack[depth - 1] : NULL;
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  UP;
  if (context == NULL || depth == kDepth) return kNoContext;
  stack[depth++] = context;
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  UP;
  if (depth == 0) return kNoContext;
  *context = stack[--depth];
  return 0;
}
int cuCtxGetDevice(int* gpu) {
  UP;
  if (depth == 0) return kNoContext;
  *gpu = stack[depth - 1]->gpu;
  return 0;
}
int cuStreamGetCtx(void* s, void** context) {
  UP;
  *context = stream_of(s)->context;
  return 0;
}
int cuStreamGetCtx_v2(void* s, void** context, void** its_green) {
  UP;
  struct Context* own = stream_of(s)->context;
  *its_green = own->part_of != NULL ? own : NULL;
  *context = own->part_of != NULL ? own->part_of : own;
  return 0;
}
/* A stream of a green context of the GPU. */
void* fake_cuda_green_stream(int gpu) {
  struct Stream* made = calloc(1, sizeof *made);
  make_primary(gpu);
  made->context = &green[gpu];
  return made;
}
int cudaGetDeviceCount(int* count) {
  UP;
  int driver = 0;
  cuDriverGetVersion(&driver);
  if (FAKE_RUNTIME / 1000 > driver / 1000) return 35;
  *count = kGpus;
  return 0;
}
int cudaGetDevice(int* device) {
  UP;
  *device = depth > 0 ? stack[depth - 1]->gpu : 0;
  return 0;
}
int cudaSetDevice(int device) {
  UP;
  if (device < 0 || device >= kGpus) return kBadDevice;
  if (depth == 0) ++depth;
  stack[depth - 1] = make_primary(device);
  return 0;
}
int cudaDeviceGetAttribute(int* value, int which, int device) {
  UP;
  (void)device;
  *value = which == 75 ? major : which == 18 ? 0 : which; /* No integrated GPU. */
  return 0;
}
int cudaMemGetInfo(size_t* available, size_t* total) {
  UP;
  (void)current();
  *available = *total = (size_t)1 << 30;
  return 0;
}
int cudaMalloc(void** p, size_t n) { return allocate(__func__, p, n, 2); }
int cudaMallocManaged(void** p, size_t n, unsigned f) {
  (void)f;
  return allocate(__func__, p, n, 3);
}
int cudaHostAlloc(void** p, size_t n, unsigned f) {
  (void)f;
  return allocate(__func__, p, n, 1);
}
int cudaFree(void* p) {
  UP;
  (void)current();
  if (refused_in_capture()) return kCaptureUnsupported;
  forget(p);
  return 0;
}
int cudaFreeHost(void* p) { return cudaFree(p); }
int cudaPointerGetAttributes(int* type_and_device, const void* p) {
  UP;
  (void)current();
  type_and_device[0] = 0;
  type_and_device[1] = -2;
  pthread_mutex_lock(&mutex);
  for (struct Memory* at = memories; at != NULL; at = at->next) {
    if ((const char*)p < at->begin || (const char*)p >= at->begin + at->size) continue;
    type_and_device[0] = at->type;
    type_and_device[1] = at->gpu;
  }
  pthread_mutex_unlock(&mutex);
  return 0;
}
int cudaMemcpyAsync(void* to, const void* from, size_t n, int kind, void* s) {
  UP;
  record("copy %zu bytes, kind %d, on %p\n", n, kind, s);
  memcpy(to, from, n);
  return 0;
}
int cudaMemsetAsync(void* to, int value, size_t n, void* s) {
  UP;
  record("set %zu bytes to %d on %p\n", n, value, s);
  memset(to, value, n);
  return 0;
}
int cudaMemcpyPeerAsync(void* to, int a, const void* from, int b, size_t n, void* s) {
  UP;
  record("copy %zu bytes from %d to %d on %p\n", n, b, a, s);
  memcpy(to, from, n);
  return 0;
}
int cudaStreamCreateWithFlags(void** s, unsigned f) {
  UP;
  struct Stream* made = calloc(1, sizeof *made);
  made->context = current();
  *s = made;
  record("stream %p, flags %u\n", *s, f);
  return 0;
}
int cudaStreamDestroy(void* s) {
  record("destroy stream %p\n", s);
  free(s);
  UP;
  return 0;
}
int cudaStreamSynchronize(void* s) {
  UP;
  record("wait for stream %p\n", s);
  __atomic_add_fetch(&waits, 1, __ATOMIC_RELAXED);
  if (!stream_of(s)->capturing) return 0;
  stream_of(s)->broken = 1;
  return kCaptureUnsupported;
}
int cudaStreamIsCapturing(void* s, int* state) {
  UP;
  *state = !stream_of(s)->capturing ? 0 : stream_of(s)->broken ? 2 : 1;
  return 0;
}
int cudaStreamWaitEvent(void* s, void* e, unsigned f) {
  UP;
  struct Stream* stream = stream_of(s);
  struct Event* event = e;
  record("%p waits for %p, flags %u\n", s, e, f);
  if (!stream->capturing) return event->captured ? kCapturedEvent : 0;
  if (event->captured || !event->recorded) return 0;
  stream->broken = 1;
  return kIsolation;
}
int cudaEventCreateWithFlags(void** e, unsigned f) {
  UP;
  struct Event* made = calloc(1, sizeof *made);
  made->context = current();
  *e = made;
  record("event %p, flags %u\n", *e, f);
  return 0;
}
int cudaEventDestroy(void* e) {
  record("destroy event %p\n", e);
  free(e);
  UP;
  return 0;
}
int cudaEventRecord(void* e, void* s) {
  UP;
  struct Event* event = e;
  struct Stream* stream = stream_of(s);
  record("record %p on %p\n", e, s);
  struct Context* context = stream->context->part_of ? stream->context->part_of : stream->context;
  if (stream != &legacy && event->context != context) return kBadHandle;
  event->recorded = 1;
  event->captured = stream->capturing;
  __atomic_store_n(&last_recorded, s, __ATOMIC_RELAXED);
  return 0;
}
int cudaEventSynchronize(void* e) {
  UP;
  record("wait for event %p\n", e);
  __atomic_add_fetch(&waits, 1, __ATOMIC_RELAXED);
  return ((struct Event*)e)->captured ? kCapturedEvent : 0;
}

static char captured, executable;
int cudaStreamBeginCapture(void* s, int mode) {
  UP;
  if (!kHasGraphs) return kCaptureUnsupported;
  record("begin capture of %p, mode %d\n", s, mode);
  stream_of(s)->capturing = 1;
  stream_of(s)->broken = 0;
  if (mode != 2) capturing = stream_of(s);
  return 0;
}
int cudaStreamEndCapture(void* s, void** graph) {
  UP;
  struct Stream* stream = stream_of(s);
  record("end capture of %p\n", s);
  stream->capturing = 0;
  capturing = NULL;
  *graph = stream->broken ? NULL : &captured;
  captured_in = stream->context;
  return stream->broken ? kCaptureInvalidated : 0;
}
int cudaGraphInstantiateWithFlags(void** graph, void* from, unsigned long long flags) {
  UP;
  record("instantiate, flags %llu\n", flags);
  *graph = &executable;
  executable_in = captured_in;
  return from == &captured ? 0 : 1;
}
int cudaGraphDestroy(void* graph) {
  UP;
  record("destroy graph\n");
  return graph == &captured ? 0 : 1;
}
int cudaGraphLaunch(void* graph, void* s) {
  UP;
  record("launch on %p\n", s);
  ++graph_launches;
  if (stream_of(s)->context != executable_in) ++graphs_outside;
  return graph == &executable ? 0 : 1;
}
int cudaGraphExecDestroy(void* graph) {
  UP;
  record("destroy executable\n");
  return graph == &executable ? 0 : 1;
}

int cudaGetLastError(void) {
  int code = last_failure;
  last_failure = 0;
  return code;
}
const char* cudaGetErrorString(int code) {
  switch (code) {
    case kOutOfMemory: return "out of memory";
    case kEnded: return "driver shutting down";
    case kIsolation: return "dependency created on uncaptured work in another stream";
    case kCapturedEvent: return "event last recorded in a capturing stream";
    case 700: return "an illegal memory access was encountered";
    default: return "fake error";
  }
}
