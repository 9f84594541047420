// Builds an engine with the TensorRT of this machine:
//
//   make_engine DESCRIPTION LIBRARY ENGINE
//
// The description is what the tests' fake of TensorRT takes for an engine (plan.h): inputs,
// outputs, ranges, and the layers linear, relu, scale, shift and sum. TF32 is off. Prints the
// library's version as it counts it.
#include <NvInfer.h>
#include <dlfcn.h>
#include <plan.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

using nvinfer1::Dims;
using nvinfer1::ITensor;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "make_engine: %s\n", what.c_str());
  std::exit(1);
}

class Logger final : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const char* text) noexcept override {
    if (severity <= Severity::kWARNING) std::fprintf(stderr, "TensorRT: %s\n", text);
  }
};

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) die(std::string(path) + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

nvinfer1::IBuilder* create_builder(const char* path, nvinfer1::ILogger& logger) {
  void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) die(dlerror());
  const auto version = reinterpret_cast<int32_t (*)()>(dlsym(library, "getInferLibVersion"));
  if (version == nullptr) die(std::string(path) + " is no TensorRT");
  std::printf("%d\n", version());
  using Create = void* (*)(void*, int32_t);
  const auto create = reinterpret_cast<Create>(dlsym(library, "createInferBuilder_INTERNAL"));
  if (create == nullptr) die(std::string(path) + " has no builder");
  void* builder = create(&logger, NV_TENSORRT_VERSION);
  if (builder == nullptr) die("TensorRT makes no builder");
  return static_cast<nvinfer1::IBuilder*>(builder);
}

class Network {
 public:
  Network(nvinfer1::INetworkDefinition& network, const fake::Plan& plan)
      : network_(network), plan_(plan) {}

  void build() {
    for (const fake::PlanTensor& tensor : plan_.tensors) {
      if (!tensor.alias.empty() || tensor.late || tensor.dtype != nvinfer1::DataType::kFLOAT) {
        die(tensor.name + " is more than a float32 tensor");
      }
      if (tensor.is_input) {
        values_[tensor.name] =
            wanted(network_.addInput(tensor.name.c_str(), tensor.dtype, tensor.dims), tensor.name);
      }
    }
    for (const fake::Layer& layer : plan_.layers) {
      values_[name_of(layer.output)] = wanted(add(layer), layer.kind);
    }
    for (const fake::PlanTensor& tensor : plan_.tensors) {
      if (tensor.is_input) continue;
      ITensor* value = wanted(values_[tensor.name], tensor.name);
      value->setName(tensor.name.c_str());
      network_.markOutput(*value);
    }
  }

 private:
  static ITensor* wanted(ITensor* value, const std::string& what) {
    if (value == nullptr) die("TensorRT has no " + what);
    return value;
  }

  const std::string& name_of(size_t tensor) const { return plan_.tensors[tensor].name; }
  ITensor& value_of(size_t tensor) { return *wanted(values_[name_of(tensor)], name_of(tensor)); }

  ITensor& constant(const float* values, std::vector<int> sizes) {
    Dims dims{};
    int64_t count = 1;
    for (const int size : sizes) dims.d[dims.nbDims++] = size, count *= size;
    const nvinfer1::Weights weights{nvinfer1::DataType::kFLOAT, values, count};
    return *network_.addConstant(dims, weights)->getOutput(0);
  }

  // One number that is broadcast over a tensor.
  ITensor& number(float value, const ITensor& like) {
    numbers_.push_back(value);
    return constant(&numbers_.back(), std::vector<int>(like.getDimensions().nbDims, 1));
  }

  ITensor* add(const fake::Layer& layer) {
    using nvinfer1::ElementWiseOperation;
    using nvinfer1::MatrixOperation;
    ITensor& x = value_of(layer.first);
    const auto combine = [&](ITensor& a, ITensor& b, ElementWiseOperation operation) {
      return network_.addElementWise(a, b, operation)->getOutput(0);
    };
    if (layer.kind == "relu") {
      return network_.addActivation(x, nvinfer1::ActivationType::kRELU)->getOutput(0);
    }
    if (layer.kind == "scale")
      return combine(x, number(layer.value, x), ElementWiseOperation::kPROD);
    if (layer.kind == "shift")
      return combine(x, number(layer.value, x), ElementWiseOperation::kSUM);
    if (layer.kind == "sum") return combine(x, value_of(layer.second), ElementWiseOperation::kSUM);
    if (layer.kind == "linear" && x.getDimensions().nbDims == 2) {
      const int in = static_cast<int>(layer.columns_in), out = static_cast<int>(layer.columns_out);
      ITensor& weights = constant(layer.numbers.data(), {out, in});
      ITensor& bias =
          constant(layer.numbers.data() + layer.columns_in * layer.columns_out, {1, out});
      ITensor* product =
          network_
              .addMatrixMultiply(x, MatrixOperation::kNONE, weights, MatrixOperation::kTRANSPOSE)
              ->getOutput(0);
      return combine(*product, bias, ElementWiseOperation::kSUM);
    }
    die("no TensorRT layer is known for " + layer.kind);
  }

  nvinfer1::INetworkDefinition& network_;
  const fake::Plan& plan_;
  std::map<std::string, ITensor*> values_;
  std::deque<float> numbers_;  // TensorRT keeps pointers until the engine is built
};

void add_profiles(nvinfer1::IBuilder& builder, nvinfer1::IBuilderConfig& config,
                  const fake::Plan& plan) {
  using nvinfer1::OptProfileSelector;
  for (const auto& ranges : plan.profiles) {
    if (ranges.empty()) continue;
    nvinfer1::IOptimizationProfile* profile = builder.createOptimizationProfile();
    for (const auto& [name, range] : ranges) {
      profile->setDimensions(name.c_str(), OptProfileSelector::kMIN, range.low);
      profile->setDimensions(name.c_str(), OptProfileSelector::kOPT, range.best);
      profile->setDimensions(name.c_str(), OptProfileSelector::kMAX, range.high);
    }
    if (config.addOptimizationProfile(profile) < 0) die("TensorRT refuses a profile");
  }
}

void make_engine(const char* description, const char* library, const char* engine) {
  fake::Plan plan;
  const std::string problem = fake::parse_plan(read(description), &plan);
  if (!problem.empty()) die(problem);
  static Logger logger;  // TensorRT may log until the process ends
  const std::unique_ptr<nvinfer1::IBuilder> builder(create_builder(library, logger));
  const std::unique_ptr<nvinfer1::INetworkDefinition> network(builder->createNetworkV2(0));
  const std::unique_ptr<nvinfer1::IBuilderConfig> config(builder->createBuilderConfig());
  if (network == nullptr || config == nullptr) die("TensorRT makes no network");
  config->clearFlag(nvinfer1::BuilderFlag::kTF32);
  Network described(*network, plan);
  described.build();
  add_profiles(*builder, *config, plan);
  const std::unique_ptr<nvinfer1::IHostMemory> bytes(
      builder->buildSerializedNetwork(*network, *config));
  if (bytes == nullptr) die("TensorRT builds no engine");
  std::ofstream file(engine, std::ios::binary);
  file.write(static_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
  if (!file.flush()) die(std::string(engine) + " cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) die("see the head of make_engine.cpp");
  make_engine(argv[1], argv[2], argv[3]);
  return 0;
}
