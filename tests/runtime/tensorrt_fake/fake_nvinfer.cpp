// A fake TensorRT library on simulated GPUs, for tests: engines are plans (plan.h), runs are host
// functions on a simulated stream. It is as strict as TensorRT is where that matters: addresses
// are aligned to 256 bytes, shapes lie in the profile, memory is the device's.
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <sstream>

#include "../../../trt_et/runtime/simulation/include/trt_et/simulation.h"
#include "plan.h"
#include "tables.h"

namespace fake {
namespace {

using nvinfer1::Dims;
using nvinfer1::ILogger;

const trt_et_sim_services* g_services = nullptr;

// As TensorRT does: what is wrong, then where it noticed.
void complain(ILogger& logger, const std::string& reason) {
  logger.log(ILogger::Severity::kERROR, reason.c_str());
  logger.log(ILogger::Severity::kERROR, "[fake_nvinfer.cpp] Error Code 4: Internal Error");
}

// Whether the next call may go on.
bool call(const char* what, ILogger& logger) {
  if (g_services == nullptr) std::abort();  // TensorRT without a driver is no better.
  if (g_services->call(what) == 0) return true;
  complain(logger, std::string("simulated failure of ") + what);
  return false;
}

struct Inside {
  Inside() { g_services->inside(1); }
  ~Inside() { g_services->inside(-1); }
};

// Memory of the device that was current.
class Memory {
 public:
  bool allocate(int64_t size) {
    return size == 0 || g_services->allocate(static_cast<size_t>(size), &pointer_) == 0;
  }
  ~Memory() {
    if (pointer_ != nullptr) (void)g_services->release(pointer_);
  }

 private:
  void* pointer_ = nullptr;
};

size_t elements(const Dims& dims) {
  size_t count = 1;
  for (int i = 0; i < dims.nbDims; ++i) count *= static_cast<size_t>(dims.d[i]);
  return count;
}

bool same_rank_within(const Dims& dims, const Dims& low, const Dims& high) {
  bool fits = dims.nbDims == low.nbDims && dims.nbDims == high.nbDims;
  for (int i = 0; fits && i < dims.nbDims; ++i) {
    fits = dims.d[i] >= low.d[i] && dims.d[i] <= high.d[i];
  }
  return fits;
}

size_t element_size(nvinfer1::DataType type) { return type == nvinfer1::DataType::kINT64 ? 8 : 4; }

// What one run needs, as it was when it was queued. Arithmetic is on float32.
struct Run {
  std::shared_ptr<const Plan> plan;
  int device = 0;
  std::vector<void*> addresses;
  std::vector<size_t> counts;
  std::vector<nvinfer1::IOutputAllocator*> late;
  std::vector<Dims> shapes;
  void* scratch = nullptr;

  int check(size_t i) const {
    return counts[i] == 0
               ? 0
               : g_services->check(addresses[i], counts[i] * element_size(plan->tensors[i].dtype),
                                   device);
  }

  int operator()() {
    if (scratch != nullptr) {
      const auto size = static_cast<size_t>(plan->scratch);
      if (const int code = g_services->check(scratch, size, device)) return code;
      std::memset(scratch, 0xEE, size);
    }
    for (size_t i = 0; i < addresses.size(); ++i) {
      if (late[i] != nullptr) {
        addresses[i] = late[i]->reallocateOutputAsync(plan->tensors[i].name.c_str(), addresses[i],
                                                      counts[i] * 4, 256, nullptr);
        if (addresses[i] == nullptr) return 1;
        late[i]->notifyShape(plan->tensors[i].name.c_str(), shapes[i]);
      }
      if (const int code = check(i)) return code;
    }
    for (const Tensor& tensor : plan->tensors) {
      // TensorRT demands it of whoever runs the engine.
      if (!tensor.alias.empty() &&
          addresses[plan->find(tensor.name)] != addresses[plan->find(tensor.alias)]) {
        return 1;
      }
    }
    for (const Layer& layer : plan->layers) {
      layer.kind == "write" ? write(layer) : layer.kind == "linear" ? linear(layer) : apply(layer);
    }
    return 0;
  }

  void write(const Layer& layer) {
    const Dims &cache = shapes[layer.output], &rows = shapes[layer.first];
    const int64_t at = *static_cast<const int64_t*>(addresses[layer.second]);
    const int64_t length = cache.d[2], count = rows.d[2], width = cache.d[3];
    if (at < 0 || at + count > length) return;
    auto* to = static_cast<float*>(addresses[layer.output]);
    const auto* from = static_cast<const float*>(addresses[layer.first]);
    for (int64_t head = 0; head < cache.d[0] * cache.d[1]; ++head) {
      std::memcpy(to + (head * length + at) * width, from + head * count * width,
                  static_cast<size_t>(count * width) * sizeof(float));
    }
  }

  void linear(const Layer& layer) {
    const auto* first = static_cast<const float*>(addresses[layer.first]);
    const std::vector<float> from(first, first + counts[layer.first]);
    auto* to = static_cast<float*>(addresses[layer.output]);
    const size_t width = layer.columns_in, rows = from.size() / width;
    if (rows * layer.columns_out != counts[layer.output]) return;
    const float* bias = layer.numbers.data() + width * layer.columns_out;
    for (size_t row = 0; row < rows; ++row) {
      for (size_t column = 0; column < layer.columns_out; ++column) {
        const float* weights = layer.numbers.data() + column * width;
        to[row * layer.columns_out + column] =
            std::inner_product(weights, weights + width, from.data() + row * width, bias[column]);
      }
    }
  }

  void apply(const Layer& layer) {
    auto* to = static_cast<float*>(addresses[layer.output]);
    const auto* first = static_cast<const float*>(addresses[layer.first]);
    const auto* second = static_cast<const float*>(addresses[layer.second]);
    for (size_t i = 0; i < counts[layer.output]; ++i) {
      const float x = first[counts[layer.first] == 1 ? 0 : i];
      if (layer.kind == "scale") to[i] = x * layer.value;
      if (layer.kind == "shift") to[i] = x + layer.value;
      if (layer.kind == "sum") to[i] = x + second[counts[layer.second] == 1 ? 0 : i];
      if (layer.kind == "relu") to[i] = x > 0 ? x : 0;
    }
  }
};

class HostMemory : public Tabled<HostMemory> {
 public:
  explicit HostMemory(std::string text) : text_(std::move(text)) {}
  void* data() noexcept { return text_.data(); }
  size_t size() noexcept { return text_.size(); }

 private:
  std::string text_;
};

// The kernels that have been compiled, one a line, behind a first line that says so.
class RuntimeCache : public Tabled<RuntimeCache> {
 public:
  nvinfer1::IHostMemory* serialize() noexcept {
    const std::lock_guard<std::mutex> lock(kernels_->mutex);
    std::string text = kMagic;
    for (const std::string& kernel : kernels_->names) text += kernel + "\n";
    return new Handle<nvinfer1::IHostMemory, HostMemory>(text);
  }
  bool deserialize(const void* bytes, size_t size) noexcept {
    std::stringstream lines(std::string(static_cast<const char*>(bytes), size));
    std::string line;
    if (!std::getline(lines, line) || line + "\n" != kMagic) return false;
    const std::lock_guard<std::mutex> lock(kernels_->mutex);
    while (std::getline(lines, line)) kernels_->names.insert(line);
    return true;
  }

  struct Kernels {
    std::mutex mutex;
    std::set<std::string> names;
  };
  const std::shared_ptr<Kernels>& kernels() const { return kernels_; }

 private:
  static constexpr const char* kMagic = "fake kernels\n";
  std::shared_ptr<Kernels> kernels_ = std::make_shared<Kernels>();
};

class RuntimeConfig : public Tabled<RuntimeConfig> {
 public:
  using Strategy = nvinfer1::ExecutionContextAllocationStrategy;

  void setExecutionContextAllocationStrategy(Strategy strategy) noexcept { strategy_ = strategy; }
  nvinfer1::IRuntimeCache* createRuntimeCache() noexcept {
    return new Handle<nvinfer1::IRuntimeCache, RuntimeCache>;
  }
  bool setRuntimeCache(const nvinfer1::IRuntimeCache& cache) noexcept {
    kernels_ =
        static_cast<const Handle<nvinfer1::IRuntimeCache, RuntimeCache>&>(cache).inside.kernels();
    return true;
  }
  bool setCudaGraphStrategy(nvinfer1::CudaGraphStrategy strategy) noexcept {
    graphs_ = strategy == nvinfer1::CudaGraphStrategy::kWHOLE_GRAPH_CAPTURE;
    return true;
  }

  Strategy strategy() const { return strategy_; }
  bool graphs() const { return graphs_; }
  const std::shared_ptr<RuntimeCache::Kernels>& kernels() const { return kernels_; }

 private:
  Strategy strategy_ = Strategy::kSTATIC;
  bool graphs_ = false;
  std::shared_ptr<RuntimeCache::Kernels> kernels_;
};

class ExecutionContext : public Tabled<ExecutionContext> {
 public:
  ExecutionContext(ILogger& logger, std::shared_ptr<const Plan> plan, int device)
      : logger_(logger), plan_(std::move(plan)), device_(device) {
    const size_t count = plan_->tensors.size();
    addresses_.resize(count);
    data_dependent_.resize(count);
    for (const Tensor& tensor : plan_->tensors) shapes_.push_back(tensor.dims);
  }

  bool allocate(bool user_memory) {
    needs_memory_ = user_memory;
    return user_memory || scratch_.allocate(plan_->scratch);
  }

  void configure(const RuntimeConfig& config) {
    kernels_ = config.kernels();
    graphs_ = config.graphs();
  }

  bool setInputShape(const char* name, const Dims& dims) noexcept {
    if (!call("setInputShape", logger_)) return false;
    const size_t i = plan_->find(name);
    const auto& profile = plan_->profiles[static_cast<size_t>(profile_)];
    const auto range = profile.find(name);
    if (i == shapes_.size() || range == profile.end() ||
        !same_rank_within(dims, range->second.low, range->second.high)) {
      complain(logger_, "setInputShape: dimensions are out of the profile");
      return false;
    }
    shapes_[i] = dims;
    return true;
  }

  int32_t inferShapes(int32_t, const char**) noexcept {
    if (!call("inferShapes", logger_)) return -1;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const Tensor& tensor = plan_->tensors[i];
      if (tensor.is_input) {
        if (elements_known(shapes_[i])) continue;
        return 1;
      }
      for (int d = 0; d < shapes_[i].nbDims; ++d) {
        if (tensor.dims.d[d] < 0) shapes_[i].d[d] = shapes_[0].d[d];
      }
    }
    return 0;
  }

  Dims getTensorShape(const char* name) noexcept {
    const size_t i = plan_->find(name);
    if (i == shapes_.size()) return Dims{-1, {}};
    return plan_->tensors[i].late ? plan_->tensors[i].dims : shapes_[i];
  }

  bool setOptimizationProfileAsync(int32_t profile, cudaStream_t) noexcept {
    if (!call("setOptimizationProfileAsync", logger_)) return false;
    profile_ = profile;
    for (size_t i = 0; i < shapes_.size(); ++i) shapes_[i] = plan_->tensors[i].dims;
    return profile >= 0 && static_cast<size_t>(profile) < plan_->profiles.size();
  }

  bool setTensorAddress(const char* name, void* address) noexcept {
    if (!call("setTensorAddress", logger_)) return false;
    const size_t i = plan_->find(name);
    if (i == addresses_.size() || address == nullptr ||
        reinterpret_cast<uintptr_t>(address) % 256 != 0) {
      complain(logger_, "setTensorAddress: not aligned to 256 bytes");
      return false;
    }
    addresses_[i] = address;
    return true;
  }

  bool setOutputAllocator(const char* name, nvinfer1::IOutputAllocator* late) noexcept {
    if (!call("setOutputAllocator", logger_)) return false;
    data_dependent_[plan_->find(name)] = late;
    return true;
  }

  void setDeviceMemoryV2(void* memory, int64_t size) noexcept {
    user_memory_ = size >= plan_->scratch ? memory : nullptr;
  }
  void setProfiler(nvinfer1::IProfiler* profiler) noexcept { profiler_ = profiler; }
  void setEnqueueEmitsProfile(bool) noexcept {}

  bool isStreamCapturable(cudaStream_t) noexcept { return !plan_->plain; }

  bool enqueueV3(cudaStream_t stream) noexcept {
    if (!call("enqueueV3", logger_)) return false;
    const Inside inside;
    auto run = std::make_unique<Run>();
    run->plan = plan_;
    run->device = device_;
    run->addresses = addresses_;
    run->late = data_dependent_;
    run->shapes = shapes_;
    run->scratch = user_memory_;
    if (needs_memory_ && user_memory_ == nullptr) {
      complain(logger_, "enqueueV3: no device memory is set");
      return false;
    }
    for (size_t i = 0; i < shapes_.size(); ++i) {
      if (!elements_known(shapes_[i]) ||
          (addresses_[i] == nullptr && data_dependent_[i] == nullptr)) {
        complain(logger_, "enqueueV3: an address or a shape is not set");
        return false;
      }
      run->counts.push_back(elements(shapes_[i]));
    }
    compile();
    for (const Layer& layer : plan_->layers) {
      if (profiler_ != nullptr) profiler_->reportLayerTime(layer.kind.c_str(), 0.5F);
    }
    return g_services->launch(
               stream, [](void* argument) { return (*static_cast<Run*>(argument))(); },
               [](void* argument) { delete static_cast<Run*>(argument); }, run.release()) == 0;
  }

 private:
  // As TensorRT-RTX does: kernels for these shapes, once in all processes that share a cache.
  void compile() {
    if (kernels_ == nullptr) return;
    std::string kernel = graphs_ ? "graph" : "plain";
    for (const Dims& shape : shapes_) kernel += " " + std::to_string(elements(shape));
    const std::lock_guard<std::mutex> lock(kernels_->mutex);
    if (kernels_->names.insert(kernel).second) {
      logger_.log(ILogger::Severity::kINFO, ("compiles kernels: " + kernel).c_str());
    }
  }

  static bool elements_known(const Dims& dims) {
    for (int i = 0; i < dims.nbDims; ++i) {
      if (dims.d[i] < 0) return false;
    }
    return true;
  }

  ILogger& logger_;
  const std::shared_ptr<const Plan> plan_;
  const int device_;
  Memory scratch_;
  bool needs_memory_ = false;
  void* user_memory_ = nullptr;
  int32_t profile_ = 0;
  std::vector<Dims> shapes_;
  std::vector<void*> addresses_;
  std::vector<nvinfer1::IOutputAllocator*> data_dependent_;
  nvinfer1::IProfiler* profiler_ = nullptr;
  std::shared_ptr<RuntimeCache::Kernels> kernels_;
  bool graphs_ = false;
};

class CudaEngine : public Tabled<CudaEngine> {
 public:
  CudaEngine(ILogger& logger, std::shared_ptr<const Plan> plan)
      : logger_(logger), plan_(std::move(plan)) {}

  bool allocate() {
    return g_services->current_device(&device_) == 0 && weights_.allocate(plan_->weights);
  }

  int32_t getNbIOTensors() noexcept { return static_cast<int32_t>(plan_->tensors.size()); }
  nvinfer1::TensorIOMode getTensorIOMode(const char* name) noexcept {
    const Tensor* tensor = find(name);
    using Mode = nvinfer1::TensorIOMode;
    return tensor == nullptr ? Mode::kNONE : tensor->is_input ? Mode::kINPUT : Mode::kOUTPUT;
  }
  nvinfer1::TensorLocation getTensorLocation(const char*) noexcept {
    return nvinfer1::TensorLocation::kDEVICE;
  }
  nvinfer1::TensorFormat getTensorFormat(const char*) noexcept {
    return nvinfer1::TensorFormat::kLINEAR;
  }
  nvinfer1::DataType getTensorDataType(const char* name) noexcept { return find(name)->dtype; }
  Dims getTensorShape(const char* name) noexcept { return find(name)->dims; }
  int32_t getNbOptimizationProfiles() noexcept {
    return static_cast<int32_t>(plan_->profiles.size());
  }
  Dims getProfileShape(const char* name, int32_t profile,
                       nvinfer1::OptProfileSelector which) noexcept {
    const auto& ranges = plan_->profiles[static_cast<size_t>(profile)];
    const auto found = ranges.find(name);
    if (found == ranges.end()) return Dims{-1, {}};
    return which == nvinfer1::OptProfileSelector::kMIN   ? found->second.low
           : which == nvinfer1::OptProfileSelector::kMAX ? found->second.high
                                                         : found->second.best;
  }
  const char* getAliasedInputTensor(const char* name) noexcept {
    const Tensor* tensor = find(name);
    return tensor == nullptr || tensor->alias.empty() ? nullptr : tensor->alias.c_str();
  }
  int64_t getDeviceMemorySizeV2() noexcept { return plan_->scratch; }
  int64_t getStreamableWeightsSize() noexcept { return plan_->streamable; }
  bool setWeightStreamingBudgetV2(int64_t budget) noexcept {
    if (!call("setWeightStreamingBudgetV2", logger_)) return false;
    if (budget <= plan_->streamable) return true;
    complain(logger_, "setWeightStreamingBudgetV2: more than there is");
    return false;
  }
  int64_t getWeightStreamingAutomaticBudget() noexcept { return 1; }

  nvinfer1::IExecutionContext* createExecutionContext(
      nvinfer1::ExecutionContextAllocationStrategy strategy) noexcept {
    if (!call("createExecutionContext", logger_)) return nullptr;
    auto context = std::make_unique<Handle<nvinfer1::IExecutionContext, ExecutionContext>>(
        logger_, plan_, device_);
    using Strategy = nvinfer1::ExecutionContextAllocationStrategy;
    if (context->inside.allocate(strategy == Strategy::kUSER_MANAGED)) return context.release();
    complain(logger_, "createExecutionContext: out of memory");
    return nullptr;
  }

  nvinfer1::IExecutionContext* createExecutionContextWithRuntimeConfig(
      nvinfer1::IRuntimeConfig* config) noexcept {
    auto& wanted = static_cast<Handle<nvinfer1::IRuntimeConfig, RuntimeConfig>*>(config)->inside;
    nvinfer1::IExecutionContext* created = createExecutionContext(wanted.strategy());
    if (created != nullptr) {
      static_cast<Handle<nvinfer1::IExecutionContext, ExecutionContext>*>(created)
          ->inside.configure(wanted);
    }
    return created;
  }

  nvinfer1::IRuntimeConfig* createRuntimeConfig() noexcept {
    if (!call("createRuntimeConfig", logger_)) return nullptr;
    return new Handle<nvinfer1::IRuntimeConfig, RuntimeConfig>;
  }

 private:
  const Tensor* find(const char* name) const {
    const size_t i = plan_->find(name);
    return i == plan_->tensors.size() ? nullptr : &plan_->tensors[i];
  }

  ILogger& logger_;
  const std::shared_ptr<const Plan> plan_;
  int device_ = 0;
  Memory weights_;
};

class Runtime : public Tabled<Runtime> {
 public:
  explicit Runtime(ILogger& logger) : logger_(logger) {}

  nvinfer1::ICudaEngine* deserializeCudaEngine(const void* bytes, size_t size) noexcept {
    if (!call("deserializeCudaEngine", logger_)) return nullptr;
    auto plan = std::make_shared<Plan>();
    const std::string problem =
        parse_plan(std::string(static_cast<const char*>(bytes), size), plan.get());
    auto engine = std::make_unique<Handle<nvinfer1::ICudaEngine, CudaEngine>>(logger_, plan);
    if (problem.empty() && engine->inside.allocate()) return engine.release();
    complain(logger_, problem.empty() ? "deserializeCudaEngine: out of memory" : problem);
    return nullptr;
  }

 private:
  ILogger& logger_;
};

// The lines of slots.def, each into the table of its class.
void fill_tables() {
#define TRT_ET_SLOT(class, method, of_10, since_10, of_11, ...) \
  put<trt_et::nvinfer::slots::class##_##method, &class ::method>(table_of<class>());
#if defined(TRT_ET_TENSORRT_RTX)
#define TRT_ET_RTX_SLOT(class, method, number, ...) TRT_ET_SLOT(class, method, 0, 0, 0, 0)
#else
#define TRT_ET_RTX_SLOT(...)
#endif
#define TRT_ET_CALLBACK(...)
#include <tensorrt/interface/slots.def>
}

}  // namespace
}  // namespace fake

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT void trt_et_fake_tensorrt_attach(const trt_et_sim_services* services) {
  fake::g_services = services;
}

FAKE_EXPORT int32_t getInferLibVersion() noexcept {
  const trt_et::tensorrt::Version& version = fake::version();
  return version.major * 10000 + version.minor * 100 + version.patch;
}

FAKE_EXPORT void* createInferRuntime_INTERNAL(void* logger, int32_t version) noexcept {
  static const bool filled = (fake::fill_tables(), true);
  auto& log = *static_cast<nvinfer1::ILogger*>(logger);
  if (!filled || version != getInferLibVersion() || !fake::call("createInferRuntime", log)) {
    return nullptr;
  }
  log.log(nvinfer1::ILogger::Severity::kINFO, "fake TensorRT started");
  return static_cast<nvinfer1::IRuntime*>(new fake::Handle<nvinfer1::IRuntime, fake::Runtime>(log));
}
