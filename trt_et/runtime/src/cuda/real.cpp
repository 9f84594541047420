// CUDA on GPUs, through libcudart. Its prototypes are repeated here, so that no CUDA header is
// needed to build; they are part of its stable ABI.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/process.h"
#include "cuda_api.h"

namespace trt_et::cuda {
namespace {

constexpr unsigned kStreamBlocking = 0;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventBlockingSync = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr int kAttributeMajor = 75;
constexpr int kAttributeMinor = 76;
constexpr int kAttributeIntegrated = 18;
constexpr int kAttributeUsesHostPageTables = 100;  // for pageable memory
constexpr int kErrorMemoryAllocation = 2;
constexpr int kCaptureNone = 0;
constexpr int kCaptureThreadLocal = 1;
constexpr int kMaxDevices = 128;

// Errors of which CUDA's documentation says that the process must be ended, for no call of it to
// this GPU succeeds any more: memory errors of the hardware, faults of kernels, a context that was
// destroyed, a server of MPS or an external device that failed.
constexpr int kLost[] = {214, 220, 226, 700, 702, 709, 710, 714,
                         715, 716, 717, 718, 719, 721, 810, 911};

// cudaPointerAttributes. CUDA 13 has reserved words behind these four fields.
struct PointerAttributes {
  int type;
  int device;
  void* device_pointer;
  void* host_pointer;
  long reserved[32];
};

using Context = void*;

// What is called of the runtime and of the driver.
#define TRT_ET_FUNCTIONS(RUNTIME, DRIVER)                                    \
  RUNTIME(cudaGetDeviceCount, int*)                                          \
  RUNTIME(cudaGetDevice, int*)                                               \
  RUNTIME(cudaDeviceGetAttribute, int*, int, int)                            \
  RUNTIME(cudaMemGetInfo, size_t*, size_t*)                                  \
  RUNTIME(cudaMalloc, void**, size_t)                                        \
  RUNTIME(cudaFree, void*)                                                   \
  RUNTIME(cudaPointerGetAttributes, PointerAttributes*, const void*)         \
  RUNTIME(cudaMemcpyAsync, void*, const void*, size_t, int, Stream)          \
  RUNTIME(cudaMemsetAsync, void*, int, size_t, Stream)                       \
  RUNTIME(cudaMemcpyPeerAsync, void*, int, const void*, int, size_t, Stream) \
  RUNTIME(cudaStreamCreateWithFlags, Stream*, unsigned)                      \
  RUNTIME(cudaStreamDestroy, Stream)                                         \
  RUNTIME(cudaStreamSynchronize, Stream)                                     \
  RUNTIME(cudaStreamWaitEvent, Stream, Event, unsigned)                      \
  RUNTIME(cudaEventCreateWithFlags, Event*, unsigned)                        \
  RUNTIME(cudaEventDestroy, Event)                                           \
  RUNTIME(cudaEventRecord, Event, Stream)                                    \
  RUNTIME(cudaEventSynchronize, Event)                                       \
  RUNTIME(cudaGetLastError)                                                  \
  RUNTIME(cudaStreamIsCapturing, Stream, int*)                               \
  DRIVER(cuDeviceGet, int*, int)                                             \
  DRIVER(cuDeviceGetName, char*, int, int)                                   \
  DRIVER(cuDevicePrimaryCtxGetState, int, unsigned*, int*)                   \
  DRIVER(cuDevicePrimaryCtxRetain, Context*, int)                            \
  DRIVER(cuCtxGetCurrent, Context*)                                          \
  DRIVER(cuCtxPushCurrent_v2, Context)                                       \
  DRIVER(cuCtxPopCurrent_v2, Context*)                                       \
  DRIVER(cuCtxGetDevice, int*)                                               \
  DRIVER(cuStreamGetCtx, Stream, Context*)                                   \
  RUNTIME(cudaStreamBeginCapture, Stream, int)                               \
  RUNTIME(cudaStreamEndCapture, Stream, void**)                              \
  RUNTIME(cudaGraphInstantiateWithFlags, Graph*, void*, unsigned long long)  \
  RUNTIME(cudaGraphDestroy, void*)                                           \
  RUNTIME(cudaGraphLaunch, Graph, Stream)                                    \
  RUNTIME(cudaGraphExecDestroy, Graph)

struct Functions {
  const char* (*cudaGetErrorString)(int);
  int (*cuStreamGetCtx_v2)(Stream, Context*, Context* green);  // null before CUDA 12.5
#define TRT_ET_FUNCTION(name, ...) int (*name)(__VA_ARGS__);
  TRT_ET_FUNCTIONS(TRT_ET_FUNCTION, TRT_ET_FUNCTION)
#undef TRT_ET_FUNCTION
};

// Looks for one function; `missing` names the first that is not there.
template <typename F>
void find(void* library, const char* name, F* function, const char** missing) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  if (*function == nullptr && *missing == nullptr) *missing = name;
}

Status find_functions(void* driver, void* runtime, Functions& f) {
  const char* missing = nullptr;
#define TRT_ET_RUNTIME(name, ...) find(runtime, #name, &f.name, &missing);
#define TRT_ET_DRIVER(name, ...) find(driver, #name, &f.name, &missing);
  TRT_ET_FUNCTIONS(TRT_ET_RUNTIME, TRT_ET_DRIVER)
  TRT_ET_RUNTIME(cudaGetErrorString)
  const char* may_be_missing = nullptr;
  find(driver, "cuStreamGetCtx_v2", &f.cuStreamGetCtx_v2, &may_be_missing);
#undef TRT_ET_RUNTIME
#undef TRT_ET_DRIVER
  if (missing == nullptr) return {};
  return {Error::NotFound, std::string("the CUDA runtime or driver has no ") + missing +
                               ", which CUDA 12 and 13 have"};
}

#undef TRT_ET_FUNCTIONS

// Calls a function of the runtime that is named in errors.
#define TRT_ET_CALL(function, ...) check(f_.function(__VA_ARGS__), #function)

class RealApi final : public Api {
 public:
  explicit RealApi(const Functions& functions) : f_(functions) {}

  bool simulated() const override { return false; }

  Status device_count(int* count) override { return TRT_ET_CALL(cudaGetDeviceCount, count); }

  Status device_info(int device, DeviceInfo* info) override {
    int handle = 0;
    char name[256] = "";
    TRT_ET_TRY(attribute(kAttributeMajor, device, &info->major));
    TRT_ET_TRY(attribute(kAttributeMinor, device, &info->minor));
    if (f_.cuDeviceGet(&handle, device) == 0) (void)f_.cuDeviceGetName(name, sizeof name, handle);
    info->name = name;
    int integrated = 0, host_page_tables = 0;
    TRT_ET_TRY(attribute(kAttributeIntegrated, device, &integrated));
    TRT_ET_TRY(attribute(kAttributeUsesHostPageTables, device, &host_page_tables));
    info->integrated = integrated != 0;
    info->pageable_access = host_page_tables != 0;
    return {};
  }

  Status current_device(int* device) override { return TRT_ET_CALL(cudaGetDevice, device); }

  // Not cudaSetDevice(): going back with that would make a context on the GPU that was current, of
  // hundreds of MB, even if the caller uses none.
  Status enter_device(int device, Entered* entered) override {
    Context primary = nullptr, current = nullptr;
    TRT_ET_TRY(primary_context(device, &primary));
    TRT_ET_TRY(check_driver(f_.cuCtxGetCurrent(&current), "cuCtxGetCurrent"));
    entered->changed = current != primary;
    if (!entered->changed) return {};
    return check_driver(f_.cuCtxPushCurrent_v2(primary), "cuCtxPushCurrent");
  }

  Status leave_device(const Entered&) override {
    Context popped = nullptr;
    return check_driver(f_.cuCtxPopCurrent_v2(&popped), "cuCtxPopCurrent");
  }

  Status free_memory(size_t* bytes) override {
    size_t total = 0;
    return TRT_ET_CALL(cudaMemGetInfo, bytes, &total);
  }

  Status allocate(size_t size, void** pointer) override {
    const int code = f_.cudaMalloc(pointer, size);
    if (code != kErrorMemoryAllocation) return check(code, "cudaMalloc");
    (void)f_.cudaGetLastError();
    return fail(Error::MemoryAllocationFailed, "no GPU memory for %zu bytes", size);
  }

  Status release(void* pointer) override { return TRT_ET_CALL(cudaFree, pointer); }

  Status pointer_info(const void* pointer, PointerInfo* info) override {
    PointerAttributes attributes{};
    TRT_ET_TRY(TRT_ET_CALL(cudaPointerGetAttributes, &attributes, pointer));
    constexpr MemoryKind kKinds[] = {MemoryKind::host, MemoryKind::pinned, MemoryKind::device,
                                     MemoryKind::managed};
    if (attributes.type < 0 || attributes.type > 3) {
      return fail(Error::NotSupported, "CUDA reports the unknown memory type %d", attributes.type);
    }
    info->kind = kKinds[attributes.type];
    info->device = attributes.type >= 2 ? attributes.device : -1;
    info->mapped = info->kind == MemoryKind::pinned && attributes.device_pointer == pointer;
    return {};
  }

  Status copy(void* to, const void* from, size_t size, CopyKind, Stream stream) override {
    constexpr int kDefault = 4;  // CUDA finds the direction from the pointers itself.
    return TRT_ET_CALL(cudaMemcpyAsync, to, from, size, kDefault, stream);
  }

  Status zero(void* to, size_t size, Stream stream) override {
    return TRT_ET_CALL(cudaMemsetAsync, to, 0, size, stream);
  }

  Status copy_peer(void* to, int to_device, const void* from, int from_device, size_t size,
                   Stream stream) override {
    return TRT_ET_CALL(cudaMemcpyPeerAsync, to, to_device, from, from_device, size, stream);
  }

  Status create_stream(StreamKind kind, Stream* stream) override {
    const unsigned flags = kind == StreamKind::blocking ? kStreamBlocking : kStreamNonBlocking;
    return check(f_.cudaStreamCreateWithFlags(stream, flags), "cudaStreamCreate");
  }

  Status destroy_stream(Stream stream) override { return TRT_ET_CALL(cudaStreamDestroy, stream); }

  Status synchronize_stream(Stream stream) override {
    return TRT_ET_CALL(cudaStreamSynchronize, stream);
  }

  // By the driver: cudaStreamGetDevice() comes with CUDA 12.8, and does not tell the context.
  Status stream_device(Stream stream, int* device, bool* green) override {
    Context owner = nullptr, primary = nullptr, popped = nullptr;
    TRT_ET_TRY(find_context(stream, &owner, green));
    for (int known = 0; known < kMaxDevices; ++known) {
      if (owner != nullptr && primary_[index(known)] == owner) return *device = known, Status{};
    }
    TRT_ET_TRY(check_driver(f_.cuCtxPushCurrent_v2(owner), "cuCtxPushCurrent"));
    const int code = f_.cuCtxGetDevice(device);
    (void)f_.cuCtxPopCurrent_v2(&popped);
    TRT_ET_TRY(check_driver(code, "cuCtxGetDevice"));
    unsigned flags = 0;
    int handle = 0, active = 0;
    TRT_ET_TRY(check_driver(f_.cuDeviceGet(&handle, *device), "cuDeviceGet"));
    TRT_ET_TRY(check_driver(f_.cuDevicePrimaryCtxGetState(handle, &flags, &active),
                            "cuDevicePrimaryCtxGetState"));
    if (active != 0) TRT_ET_TRY(primary_context(*device, &primary));
    if (owner == primary) return {};
    return fail(
        Error::NotSupported,
        "the stream belongs to a CUDA context of its own on cuda:%d, and engines run in the "
        "primary one",
        *device);
  }

  Status is_captured(Stream stream, bool* captured) override {
    int state = kCaptureNone;
    TRT_ET_TRY(TRT_ET_CALL(cudaStreamIsCapturing, stream, &state));
    *captured = state != kCaptureNone;
    return {};
  }

  Status create_event(Event* event, bool blocking) override {
    const unsigned flags = kEventDisableTiming | (blocking ? kEventBlockingSync : 0);
    return check(f_.cudaEventCreateWithFlags(event, flags), "cudaEventCreate");
  }

  Status destroy_event(Event event) override { return TRT_ET_CALL(cudaEventDestroy, event); }

  Status record_event(Event event, Stream stream) override {
    return TRT_ET_CALL(cudaEventRecord, event, stream);
  }

  Status wait_event(Stream stream, Event event) override {
    return TRT_ET_CALL(cudaStreamWaitEvent, stream, event, 0);
  }

  Status synchronize_event(Event event) override {
    return TRT_ET_CALL(cudaEventSynchronize, event);
  }

  Status begin_capture(Stream stream) override {
    return TRT_ET_CALL(cudaStreamBeginCapture, stream, kCaptureThreadLocal);
  }

  Status end_capture(Stream stream, Graph* graph) override {
    void* captured = nullptr;
    TRT_ET_TRY(TRT_ET_CALL(cudaStreamEndCapture, stream, &captured));
    if (captured == nullptr) return {Error::Internal, "CUDA captured no graph"};
    Status status =
        check(f_.cudaGraphInstantiateWithFlags(graph, captured, 0), "cudaGraphInstantiate");
    (void)f_.cudaGraphDestroy(captured);
    return status;
  }

  Status launch_graph(Graph graph, Stream stream) override {
    return TRT_ET_CALL(cudaGraphLaunch, graph, stream);
  }

  Status destroy_graph(Graph graph) override { return TRT_ET_CALL(cudaGraphExecDestroy, graph); }

 private:
  static size_t index(int device) { return static_cast<size_t>(device); }

  Status attribute(int which, int device, int* value) {
    return TRT_ET_CALL(cudaDeviceGetAttribute, value, which, device);
  }

  // The context of a stream; of a green context's, the primary one that it is a part of.
  Status find_context(Stream stream, Context* context, bool* is_green) {
    Context green = nullptr;
    const int code = f_.cuStreamGetCtx_v2 == nullptr
                         ? f_.cuStreamGetCtx(stream, context)
                         : f_.cuStreamGetCtx_v2(stream, context, &green);
    *is_green = green != nullptr;
    return check_driver(code, "cuStreamGetCtx");
  }

  // Retained once for the life of the process.
  Status primary_context(int device, Context* context) {
    if (device < 0 || device >= kMaxDevices) {
      return fail(Error::InvalidArgument, "cuda:%d does not exist", device);
    }
    std::atomic<Context>& known = primary_[index(device)];
    *context = known.load(std::memory_order_acquire);
    if (*context != nullptr) return {};
    const std::lock_guard<std::mutex> lock(mutex_);
    int handle = 0;
    *context = known;
    if (*context != nullptr) return {};
    TRT_ET_TRY(check_driver(f_.cuDeviceGet(&handle, device), "cuDeviceGet"));
    TRT_ET_TRY(
        check_driver(f_.cuDevicePrimaryCtxRetain(context, handle), "cuDevicePrimaryCtxRetain"));
    known.store(*context, std::memory_order_release);
    return {};
  }

  // The driver's numbers are the runtime's.
  Status check_driver(int code, const char* what) {
    return code == 0 ? Status{} : failure(code, what, "driver error");
  }

  Status check(int code, const char* what) {
    if (code == 0) return {};
    (void)f_.cudaGetLastError();  // Else the next caller of CUDA would get this failure.
    return failure(code, what, f_.cudaGetErrorString(code));
  }

  // Out of memory, a lost GPU and the rest, each with a code of its own.
  static Status failure(int code, const char* what, const char* reason) {
    if (code == kErrorMemoryAllocation) {
      return fail(Error::MemoryAllocationFailed, "%s failed: out of memory", what);
    }
    if (std::find(std::begin(kLost), std::end(kLost), code) != std::end(kLost)) {
      return fail(Error::AccessFailed,
                  "%s failed: %s (%d); the GPU is lost to this process: end it", what, reason,
                  code);
    }
    return fail(Error::Internal, "%s failed: %s (%d)", what, reason, code);
  }

  const Functions f_;
  std::mutex mutex_;
  std::array<std::atomic<Context>, kMaxDevices> primary_{};
};

constexpr int kRuntimeMajors[] = {13, 12};

using GetVersion = int (*)(int*);

// 12040 for CUDA 12.4; 0 where a library does not say.
int version_of(void* library, const char* function) {
  const auto get = reinterpret_cast<GetVersion>(dlsym(library, function));
  int version = 0;
  return get != nullptr && get(&version) == 0 ? version : 0;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// A runtime of a later major than the driver knows fails at every call (error 35).
bool runs_on(int runtime, int driver) {
  return runtime == 0 || driver == 0 || runtime / 1000 <= driver / 1000;
}

Status open_named(const char* path, int driver, void** library) {
  *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (*library == nullptr) {
    return fail(Error::NotFound, "TRT_ET_CUDART_LIBRARY names a library that does not load: %s",
                dlerror());
  }
  const int version = version_of(*library, "cudaRuntimeGetVersion");
  if (runs_on(version, driver)) return {};
  dlclose(*library);
  return fail(Error::NotFound,
              "TRT_ET_CUDART_LIBRARY is CUDA %s, and the driver supports CUDA up to %s: update the "
              "driver, or name libcudart.so.%d",
              version_text(version).c_str(), version_text(driver).c_str(), driver / 1000);
}

// Where pip's wheels put them, from site-packages.
constexpr const char* kWheelFolders[] = {"nvidia/cu13/lib", "nvidia/cuda_runtime/lib"};

// Folders that the loader does not search: of pip's wheels, of conda, and of NVIDIA's installer.
std::vector<std::string> folders_of_major(int major) {
  const std::string packages[] = {own_packages(), executorch_packages()};
  std::vector<std::string> folders;
  for (const std::string& parent : packages) {
    for (const char* folder : kWheelFolders) {
      if (!parent.empty()) folders.push_back(parent + "/" + folder);
    }
  }
  constexpr std::pair<const char*, const char*> kVariables[] = {
      {"CONDA_PREFIX", "/lib"}, {"CUDA_HOME", "/lib64"}, {"CUDA_PATH", "/lib64"}};
  for (const auto& [variable, folder] : kVariables) {
    const char* value = environment_variable(variable);
    if (value != nullptr && *value != '\0') folders.push_back(std::string(value) + folder);
  }
  folders.push_back("/usr/local/cuda-" + std::to_string(major) + "/lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  return folders;
}

// Opens the driver and initialises it. This comes before any other NVIDIA library is touched:
// TensorRT without a driver returns garbage pointers.
Status open_driver(void** library) {
  void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return {Error::NotFound, "no NVIDIA driver (libcuda.so.1 not found)"};
  }
  using Init = int (*)(unsigned);
  const auto init = reinterpret_cast<Init>(dlsym(handle, "cuInit"));
  const int code = init == nullptr ? -1 : init(0);
  if (code != 0) {
    dlclose(handle);
    return fail(Error::NotFound, "NVIDIA driver is unusable: cuInit failed with error %d%s", code,
                code == 100 ? " (no GPU)" : "");
  }
  *library = handle;
  return {};
}

// Opens the newest CUDA runtime that the driver can run: the file that TRT_ET_CUDART_LIBRARY names,
// else what the loader's path has, else one of the folders.
Status open_runtime(void* driver_library, void** library) {
  const int driver = version_of(driver_library, "cuDriverGetVersion");
  const char* named = environment_variable("TRT_ET_CUDART_LIBRARY");
  if (named != nullptr && *named != '\0') return open_named(named, driver, library);
  for (const int major : kRuntimeMajors) {
    if (!runs_on(major * 1000, driver)) continue;
    const std::string name = "libcudart.so." + std::to_string(major);
    *library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (*library != nullptr) return {};
    for (const std::string& folder : folders_of_major(major)) {
      *library = dlopen((folder + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (*library != nullptr) return {};
    }
  }
  if (!runs_on(kRuntimeMajors[0] * 1000, driver)) {
    return fail(
        Error::NotFound,
        "no CUDA runtime for this driver, which supports CUDA up to %s (libcudart.so.12 not "
        "found): pip install nvidia-cuda-runtime-cu12, or update the driver",
        version_text(driver).c_str());
  }
  return {Error::NotFound,
          "no CUDA runtime (libcudart.so.13 or .12 not found): pip install nvidia-cuda-runtime, or "
          "set TRT_ET_CUDART_LIBRARY"};
}

}  // namespace

Status make_real_api(Api** api) {
  void* driver = nullptr;
  void* runtime = nullptr;
  Functions functions{};
  TRT_ET_TRY(open_driver(&driver));
  TRT_ET_TRY(open_runtime(driver, &runtime));
  TRT_ET_TRY(find_functions(driver, runtime, functions));
  *api = new RealApi(functions);
  return {};
}

}  // namespace trt_et::cuda
