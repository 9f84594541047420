#include "gpu_run.h"

#include <dlfcn.h>

#include <cstdio>
#include <map>
#include <mutex>

namespace fake {
namespace {

// A linear layer may write over its input: a block has read its row before it writes.
constexpr const char* kSource = R"(
// A bit for each multiprocessor that a kernel has run on.
__device__ unsigned long long met[4];
__device__ void meet() {
  unsigned id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  atomicOr(&met[id / 64 % 4], 1ull << id % 64);
}
extern "C" __global__ void elementwise(float* to, const float* x, const float* y, long count,
                                       long x_count, long y_count, int kind, float value) {
  meet();
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i >= count) return;
  float a = x[x_count == 1 ? 0 : i];
  if (kind == 0) to[i] = a * value;
  if (kind == 1) to[i] = a + value;
  if (kind == 2) to[i] = a + y[y_count == 1 ? 0 : i];
  if (kind == 3) to[i] = a > 0 ? a : 0;
}
extern "C" __global__ void linear(float* to, const float* x, const float* numbers, int in,
                                  int out) {
  extern __shared__ float row[];
  meet();
  for (int i = threadIdx.x; i < in; i += blockDim.x) row[i] = x[blockIdx.x * (long)in + i];
  __syncthreads();
  for (int column = threadIdx.x; column < out; column += blockDim.x) {
    float sum = numbers[(long)in * out + column];
    for (int i = 0; i < in; ++i) sum += row[i] * numbers[(long)column * in + i];
    to[blockIdx.x * (long)out + column] = sum;
  }
}
extern "C" __global__ void write_rows(float* cache, const float* rows, const long* at,
                                      long length, long count, long width) {
  if (*at < 0 || *at + count > length) return;
  for (long i = threadIdx.x; i < count * width; i += blockDim.x) {
    cache[(blockIdx.x * length + *at) * width + i] = rows[blockIdx.x * count * width + i];
  }
}
)";

constexpr unsigned kThreads = 128;

// What is called of the driver and of NVRTC, CUDA's compiler for strings.
#define TRT_ET_FUNCTIONS(DRIVER, NVRTC)                                                        \
  DRIVER(cuCtxGetCurrent, void**)                                                              \
  DRIVER(cuCtxGetDevice, int*)                                                                 \
  DRIVER(cuDeviceGetAttribute, int*, int, int)                                                 \
  DRIVER(cuMemAlloc_v2, void**, size_t)                                                        \
  DRIVER(cuMemFree_v2, void*)                                                                  \
  DRIVER(cuMemcpyHtoD_v2, void*, const void*, size_t)                                          \
  DRIVER(cuMemcpyDtoH_v2, void*, const void*, size_t)                                          \
  DRIVER(cuModuleGetGlobal_v2, void**, size_t*, void*, const char*)                            \
  DRIVER(cuMemsetD8Async, void*, unsigned char, size_t, void*)                                 \
  DRIVER(cuModuleLoadData, void**, const void*)                                                \
  DRIVER(cuModuleGetFunction, void**, void*, const char*)                                      \
  DRIVER(cuLaunchKernel, void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,    \
         unsigned, void*, void**, void**)                                                      \
  NVRTC(nvrtcCreateProgram, void**, const char*, const char*, int, const char**, const char**) \
  NVRTC(nvrtcCompileProgram, void*, int, const char**)                                         \
  NVRTC(nvrtcGetCUBINSize, void*, size_t*)                                                     \
  NVRTC(nvrtcGetCUBIN, void*, char*)

struct Functions {
#define TRT_ET_FUNCTION(name, ...) int (*name)(__VA_ARGS__) = nullptr;
  TRT_ET_FUNCTIONS(TRT_ET_FUNCTION, TRT_ET_FUNCTION)
#undef TRT_ET_FUNCTION
};

void* open_first(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

template <typename F>
void find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(library == nullptr ? nullptr : dlsym(library, name));
  if (*function == nullptr) std::fprintf(stderr, "kernels in place of TensorRT: no %s\n", name);
}

const Functions& functions() {
  static const Functions all = [] {
    Functions f;
    void* driver = open_first({"libcuda.so.1"});
    void* nvrtc = open_first({"libnvrtc.so.13", "libnvrtc.so.12"});
#define TRT_ET_DRIVER(name, ...) find(driver, #name, &f.name);
#define TRT_ET_NVRTC(name, ...) find(nvrtc, #name, &f.name);
    TRT_ET_FUNCTIONS(TRT_ET_DRIVER, TRT_ET_NVRTC)
    return f;
  }();
  return all;
}

bool good(int code, const char* what) {
  if (code != 0) std::fprintf(stderr, "kernels in place of TensorRT: %s: error %d\n", what, code);
  return code == 0;
}

#define TRT_ET_GOOD(function, ...) good(functions().function(__VA_ARGS__), #function)

bool compile(std::string* cubin) {
  int device = 0, major = 0, minor = 0;
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
  void* program = nullptr;
  size_t size = 0;
  if (!TRT_ET_GOOD(cuCtxGetDevice, &device) ||
      !TRT_ET_GOOD(cuDeviceGetAttribute, &major, kMajor, device) ||
      !TRT_ET_GOOD(cuDeviceGetAttribute, &minor, kMinor, device)) {
    return false;
  }
  const std::string target = "-arch=sm_" + std::to_string(major) + std::to_string(minor);
  const char* options[] = {target.c_str()};
  if (!TRT_ET_GOOD(nvrtcCreateProgram, &program, kSource, "kernels.cu", 0, nullptr, nullptr) ||
      !TRT_ET_GOOD(nvrtcCompileProgram, program, 1, options) ||
      !TRT_ET_GOOD(nvrtcGetCUBINSize, program, &size)) {
    return false;
  }
  cubin->resize(size);
  return TRT_ET_GOOD(nvrtcGetCUBIN, program, cubin->data());
}

bool launch(void* kernel, size_t blocks, size_t shared, void* stream, std::vector<void*> values) {
  return blocks == 0 ||
         TRT_ET_GOOD(cuLaunchKernel, kernel, static_cast<unsigned>(blocks), 1, 1, kThreads, 1, 1,
                     static_cast<unsigned>(shared), stream, values.data(), nullptr);
}

}  // namespace

struct Prepared::Kernels {
  void *elementwise = nullptr, *linear = nullptr, *write_rows = nullptr, *met = nullptr;

  bool load() {
    std::string cubin;
    void* module = nullptr;
    size_t size = 0;
    return compile(&cubin) && TRT_ET_GOOD(cuModuleLoadData, &module, cubin.data()) &&
           TRT_ET_GOOD(cuModuleGetFunction, &elementwise, module, "elementwise") &&
           TRT_ET_GOOD(cuModuleGetFunction, &linear, module, "linear") &&
           TRT_ET_GOOD(cuModuleGetFunction, &write_rows, module, "write_rows") &&
           TRT_ET_GOOD(cuModuleGetGlobal_v2, &met, &size, module, "met");
  }
};

namespace {

// Of the current context; they stay for the life of the process.
const Prepared::Kernels* kernels_here() {
  static std::mutex mutex;
  static std::map<void*, Prepared::Kernels> all;
  void* context = nullptr;
  if (!TRT_ET_GOOD(cuCtxGetCurrent, &context)) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = all.find(context);
  if (known != all.end()) return &known->second;
  Prepared::Kernels loaded;
  return loaded.load() ? &(all[context] = loaded) : nullptr;
}

struct Queue {
  const Run& run;
  const Prepared& prepared;
  void* stream;

  bool layer(size_t index) const {
    const PlanLayer& layer = run.plan->layers[index];
    if (layer.kind == "write") return write(layer);
    return layer.kind == "linear" ? linear(layer, prepared.numbers[index]) : elementwise(layer);
  }

  bool elementwise(const PlanLayer& layer) const {
    void *to = run.addresses[layer.output], *x = run.addresses[layer.first],
         *y = run.addresses[layer.second];
    auto count = static_cast<long>(run.counts[layer.output]),
         x_count = static_cast<long>(run.counts[layer.first]),
         y_count = static_cast<long>(run.counts[layer.second]);
    int kind = layer.kind == "scale" ? 0 : layer.kind == "shift" ? 1 : layer.kind == "sum" ? 2 : 3;
    float value = layer.value;
    const size_t blocks = (run.counts[layer.output] + kThreads - 1) / kThreads;
    return launch(prepared.kernels->elementwise, blocks, 0, stream,
                  {&to, &x, &y, &count, &x_count, &y_count, &kind, &value});
  }

  bool linear(const PlanLayer& layer, void* numbers) const {
    void *to = run.addresses[layer.output], *x = run.addresses[layer.first];
    int in = static_cast<int>(layer.columns_in), out = static_cast<int>(layer.columns_out);
    const size_t rows = run.counts[layer.first] / layer.columns_in;
    return rows * layer.columns_out == run.counts[layer.output] &&
           launch(prepared.kernels->linear, rows, layer.columns_in * sizeof(float), stream,
                  {&to, &x, &numbers, &in, &out});
  }

  bool write(const PlanLayer& layer) const {
    const Dims &cache = run.shapes[layer.output], &rows = run.shapes[layer.first];
    void *to = run.addresses[layer.output], *x = run.addresses[layer.first],
         *at = run.addresses[layer.second];
    long length = cache.d[2], count = rows.d[2], width = cache.d[3];
    return launch(prepared.kernels->write_rows, static_cast<size_t>(cache.d[0] * cache.d[1]), 0,
                  stream, {&to, &x, &at, &length, &count, &width});
  }
};

}  // namespace

Prepared::~Prepared() {
  for (void* memory : numbers) {
    if (memory != nullptr) (void)TRT_ET_GOOD(cuMemFree_v2, memory);
  }
}

bool Prepared::prepare(const Plan& plan) {
  kernels = kernels_here();
  if (kernels == nullptr) return false;
  for (const PlanLayer& layer : plan.layers) {
    numbers.push_back(nullptr);
    const size_t size = layer.numbers.size() * sizeof(float);
    if (size != 0 && (!TRT_ET_GOOD(cuMemAlloc_v2, &numbers.back(), size) ||
                      !TRT_ET_GOOD(cuMemcpyHtoD_v2, numbers.back(), layer.numbers.data(), size))) {
      return false;
    }
  }
  return true;
}

bool queue(Run run, const Prepared& prepared, cudaStream_t stream) {
  if (!run.allocate_late() || !run.aliases_share_memory()) return false;
  const auto scratch = static_cast<size_t>(run.plan->scratch);
  if (run.scratch != nullptr && scratch != 0 &&
      !TRT_ET_GOOD(cuMemsetD8Async, run.scratch, 0xEE, scratch, stream)) {
    return false;
  }
  const Queue on{run, prepared, stream};
  for (size_t i = 0; i < run.plan->layers.size(); ++i) {
    if (!on.layer(i)) return false;
  }
  return true;
}

// How many multiprocessors have run kernels since the last question; -1: unknown.
extern "C" __attribute__((visibility("default"))) int kernels_multiprocessors(void) {
  const Prepared::Kernels* kernels = kernels_here();
  uint64_t met[4] = {};
  constexpr uint64_t kNone[4] = {};
  if (kernels == nullptr || !TRT_ET_GOOD(cuMemcpyDtoH_v2, met, kernels->met, sizeof met) ||
      !TRT_ET_GOOD(cuMemcpyHtoD_v2, kernels->met, kNone, sizeof kNone)) {
    return -1;
  }
  int count = 0;
  for (const uint64_t bits : met) count += __builtin_popcountll(bits);
  return count;
}

const trt_et_sim_services* gpu_services() {
  static const trt_et_sim_services services = {
      [](const char*) { return 0; },
      [](int* device) { return functions().cuCtxGetDevice(device); },
      [](size_t size, void** pointer) { return functions().cuMemAlloc_v2(pointer, size); },
      [](void* pointer) { return functions().cuMemFree_v2(pointer); },
      [](const void*, size_t, int) { return 0; },
      nullptr,  // Runs are kernels.
      [](int) {},
  };
  return &services;
}

}  // namespace fake
