// A fake TensorRT library on simulated GPUs, for tests: engines are plans (plan.h), runs are host
// functions on a simulated stream. It is as strict as TensorRT is where that matters: addresses
// are aligned to 256 bytes, shapes lie in the profile, memory is the device's.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "builder.h"
#include "execution_context.h"

namespace fake {
namespace {

class CudaEngine : public Tabled<CudaEngine> {
 public:
  CudaEngine(ILogger& logger, std::shared_ptr<const Plan> plan)
      : logger_(logger), plan_(std::move(plan)) {}

  bool allocate() {
    return g_services->current_device(&device_) == 0 && weights_.allocate(plan_->weights) &&
           prepared_.prepare(*plan_);
  }

  int32_t getNbIOTensors() noexcept { return static_cast<int32_t>(plan_->tensors.size()); }
  nvinfer1::TensorIOMode getTensorIOMode(const char* name) noexcept {
    const PlanTensor* tensor = find(name);
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
    const PlanTensor* tensor = find(name);
    return tensor == nullptr || tensor->alias.empty() ? nullptr : tensor->alias.c_str();
  }
  // Asked while its own device is current.
  int64_t getDeviceMemorySizeV2() noexcept {
    int current = -1;
    const bool known = g_services->current_device(&current) == 0;
    return known && current == device_ ? plan_->scratch : -1;
  }
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
    if (plan_->no_context) {
      if (!plan_->why_no_context.empty()) complain(logger_, plan_->why_no_context);
      return nullptr;
    }
    auto context = std::make_unique<Handle<nvinfer1::IExecutionContext, ExecutionContext>>(
        logger_, plan_, prepared_, device_);
    using Strategy = nvinfer1::ExecutionContextAllocationStrategy;
    if (plan_->user_memory && strategy != Strategy::kUSER_MANAGED) {
      complain(logger_, "createExecutionContext: the engine requires kUSER_MANAGED");
      return nullptr;
    }
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
  const PlanTensor* find(const char* name) const {
    const size_t i = plan_->find(name);
    return i == plan_->tensors.size() ? nullptr : &plan_->tensors[i];
  }

  ILogger& logger_;
  const std::shared_ptr<const Plan> plan_;
  int device_ = 0;
  Memory weights_;
  Prepared prepared_;
};

std::set<std::string>& plugins() {
  static std::set<std::string> names;
  return names;
}

// Takes libraries that name their plugin in `fake_plugin`.
class PluginRegistry : public Tabled<PluginRegistry> {
 public:
  void* loadLibrary(const char* path) noexcept {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const auto name =
        static_cast<const char*>(library == nullptr ? nullptr : dlsym(library, "fake_plugin"));
    return name != nullptr && plugins().insert(name).second ? library : nullptr;
  }
};

// The reason why the bytes are no engine of this version; empty when they are one.
std::string parse_engine(const std::string& bytes, Plan* plan) {
  const bool has_header =
      bytes.size() >= 32 && (bytes.rfind("ftrt", 0) == 0 || bytes.rfind("vtrt", 0) == 0);
  std::string problem = parse_plan(bytes.substr(has_header ? 32 : 0), plan);
  // A version-compatible engine holds code: the lean runtime of its version.
  if (has_header && bytes[24] != trt_et::tensorrt::kMajor && !plan->host_code) {
    return "the engine plan file is not compatible with this version of TensorRT";
  }
  return problem;
}

class Runtime : public Tabled<Runtime> {
 public:
  explicit Runtime(ILogger& logger) : logger_(logger) {}

  nvinfer1::ICudaEngine* deserializeCudaEngine(const void* bytes, size_t size) noexcept {
    if (!call("deserializeCudaEngine", logger_)) return nullptr;
    auto plan = std::make_shared<Plan>();
    std::string problem =
        parse_engine(std::string(static_cast<const char*>(bytes), size), plan.get());
    if (problem.empty()) problem = missing(*plan);
    auto engine = std::make_unique<Handle<nvinfer1::ICudaEngine, CudaEngine>>(logger_, plan);
    if (problem.empty() && engine->inside.allocate()) return engine.release();
    // As TensorRT does, which first says what it was doing.
    if (problem.empty()) complain(logger_, "[fake_nvinfer.cpp] Error Code 1: Cuda Runtime");
    complain(logger_, problem.empty() ? "deserializeCudaEngine: out of memory" : problem);
    return nullptr;
  }
  void setDLACore(int32_t core) noexcept {
    core_ = core;
    logger_.log(ILogger::Severity::kINFO, ("DLA core " + std::to_string(core)).c_str());
  }
  int32_t getNbDLACores() noexcept {
    const char* cores = std::getenv("TRT_ET_FAKE_DLA_CORES");
    return cores == nullptr ? 0 : std::atoi(cores);
  }
  void setEngineHostCodeAllowed(bool allowed) noexcept { host_code_ = allowed; }

 private:
  std::string missing(const Plan& plan) const {
    if (plan.host_code && !host_code_) return "the engine holds host code, which is not allowed";
    if (plan.dla && core_ < 0) return "the engine needs a DLA core";
    for (const std::string& name : plan.plugins) {
      if (plugins().count(name) == 0) return "Cannot find plugin: " + name + ", version: 1";
    }
    return "";
  }

  ILogger& logger_;
  int32_t core_ = -1;
  bool host_code_ = false;
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
  // The destructor lies in front of this one.
  using Behind = trt_et::nvinfer::slots::OnnxParser_getUsedVCPluginLibraries;
  table_of<OnnxParser>()[Behind::kNumber - 1] = reinterpret_cast<void*>(&OnnxParser::destroy);
}

bool is_filled() {
  static const bool filled = (fill_tables(), true);
  return filled;
}

}  // namespace
}  // namespace fake

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT void trt_et_fake_tensorrt_attach(const trt_et_sim_services* services) {
  fake::g_services = services;
  fake::g_inside = services->inside;
}

FAKE_EXPORT int32_t getInferLibVersion() noexcept {
  const trt_et::tensorrt::Version& version = fake::version();
  return version.major * 10000 + version.minor * 100 + version.patch;
}

// As libnvinfer_plugin registers its plugins.
FAKE_EXPORT void fake_register_plugin(const char* name) { fake::plugins().insert(name); }

FAKE_EXPORT void* getPluginRegistry() noexcept {
  static_cast<void>(fake::is_filled());
  static fake::PluginRegistry registry;
  return &registry;
}

FAKE_EXPORT void* createInferRuntime_INTERNAL(void* logger, int32_t version) noexcept {
  const fake::Inside inside;
  auto& log = *static_cast<nvinfer1::ILogger*>(logger);
  if (!fake::is_filled() || version != getInferLibVersion() ||
      !fake::call("createInferRuntime", log)) {
    return nullptr;
  }
  log.log(nvinfer1::ILogger::Severity::kINFO, "fake TensorRT started");
  return static_cast<nvinfer1::IRuntime*>(new fake::Handle<nvinfer1::IRuntime, fake::Runtime>(log));
}

FAKE_EXPORT void* createInferBuilder_INTERNAL(void* logger, int32_t version) noexcept {
  const fake::Inside inside;
  auto& log = *static_cast<nvinfer1::ILogger*>(logger);
  if (!fake::is_filled() || version != getInferLibVersion()) return nullptr;
  return static_cast<nvinfer1::IBuilder*>(new fake::Handle<nvinfer1::IBuilder, fake::Builder>(log));
}

// The parser, which is found by another file name of this library.
FAKE_EXPORT int32_t getNvOnnxParserVersion() noexcept { return 100; }

FAKE_EXPORT void* createNvOnnxParser_INTERNAL(void* network, void* logger, int32_t) noexcept {
  const fake::Inside inside;
  return new fake::OnnxParser(*static_cast<nvinfer1::INetworkDefinition*>(network),
                              *static_cast<nvinfer1::ILogger*>(logger));
}
