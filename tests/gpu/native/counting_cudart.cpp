// A CUDA runtime that counts what the delegate calls, and hands every call on to the real one:
//
//   TRT_ET_CUDART_LIBRARY=libcounting_cudart.so TRT_ET_COUNTED_CUDART=libcudart.so.13 ...
//
// TensorRT has a CUDA runtime of its own inside, whose calls are not counted. All of these
// functions take at most six numbers or pointers and return one, which one signature hands on in
// the C calling conventions of x86-64 and arm64.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using Word = uintptr_t;
using Function = Word (*)(Word, Word, Word, Word, Word, Word);

using Count = std::atomic<uint64_t>;

void* real_library() {
  static void* const library = [] {
    const char* path = std::getenv("TRT_ET_COUNTED_CUDART");
    void* opened = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (opened != nullptr) return opened;
    std::fprintf(stderr, "TRT_ET_COUNTED_CUDART names no CUDA runtime: %s\n", dlerror());
    std::abort();
  }();
  return library;
}

Word not_supported(Word, Word, Word, Word, Word, Word) { return 801; }  // cudaErrorNotSupported

Function find(const char* name) {
  const auto function = reinterpret_cast<Function>(dlsym(real_library(), name));
  return function == nullptr ? not_supported : function;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

#define COUNTED(name)                                                         \
  static Count g_##name{0};                                                   \
  EXPORT Word name(Word a, Word b, Word c, Word d, Word e, Word f) noexcept { \
    static const Function function = find(#name);                             \
    ++g_##name;                                                               \
    return function(a, b, c, d, e, f);                                        \
  }

// Everything that trt_et/runtime/src/cuda/real.cpp looks for; a test compares the two.
#define FUNCTIONS(X)               \
  X(cudaGetDeviceCount)            \
  X(cudaGetDevice)                 \
  X(cudaMemGetInfo)                \
  X(cudaDeviceGetAttribute)        \
  X(cudaMalloc)                    \
  X(cudaFree)                      \
  X(cudaHostAlloc)                 \
  X(cudaFreeHost)                  \
  X(cudaPointerGetAttributes)      \
  X(cudaMemcpyAsync)               \
  X(cudaMemsetAsync)               \
  X(cudaMemcpyPeerAsync)           \
  X(cudaStreamCreateWithFlags)     \
  X(cudaStreamDestroy)             \
  X(cudaStreamSynchronize)         \
  X(cudaStreamWaitEvent)           \
  X(cudaEventCreateWithFlags)      \
  X(cudaEventDestroy)              \
  X(cudaEventRecord)               \
  X(cudaEventSynchronize)          \
  X(cudaGetLastError)              \
  X(cudaGetErrorString)            \
  X(cudaStreamIsCapturing)         \
  X(cudaStreamBeginCapture)        \
  X(cudaStreamEndCapture)          \
  X(cudaGraphInstantiateWithFlags) \
  X(cudaGraphDestroy)              \
  X(cudaGraphLaunch)               \
  X(cudaGraphExecDestroy)

FUNCTIONS(COUNTED)

// How often a function was called; UINT64_MAX where it is not counted.
EXPORT uint64_t counted_calls(const char* name) noexcept {
#define COUNT_OF(function) \
  if (std::strcmp(name, #function) == 0) return g_##function;
  FUNCTIONS(COUNT_OF)
  return UINT64_MAX;
}

// The name of the n-th counted function; null behind the last.
EXPORT const char* counted_name(size_t n) noexcept {
#define NAME_OF(function) #function,
  static const char* const names[] = {FUNCTIONS(NAME_OF)};
  return n < sizeof names / sizeof *names ? names[n] : nullptr;
}
