// The fake's builder and ONNX parser. A model's text of the plan (plan.h) lies somewhere in its
// bytes, in its doc_string for instance, from "fake\n" to "end\n". Lines for the build alone:
//
//   scale_by y x W                 scale y x by the first float of the initializer W
//   refuse node Op the reason      the parser's error
//   unbuildable the reason         the builder's
//   steps 5 100                    a build of 5 steps, each of 100 ms
//   steps 5 100 aside              likewise, on a thread of the builder's
//
// TRT_ET_FAKE_ENGINE is a file with the engine of every network.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime_cache.h"
#include "tensorrt/build/onnx_model.h"

namespace fake {

class Tensor : public Tabled<Tensor> {
 public:
  explicit Tensor(const PlanTensor& tensor) : tensor_(tensor) {}
  const char* getName() noexcept { return tensor_.name.c_str(); }
  Dims getDimensions() noexcept { return tensor_.dims; }
  nvinfer1::DataType getType() noexcept { return tensor_.dtype; }

 private:
  const PlanTensor tensor_;
};

#if defined(TRT_ET_TENSORRT_RTX)
// No network has one.
class Layer : public Tabled<Layer> {
 public:
  nvinfer1::LayerType getType() noexcept { return {}; }
  int32_t getNbInputs() noexcept { return 0; }
  nvinfer1::ITensor* getInput(int32_t) noexcept { return nullptr; }
  nvinfer1::ITensor* getOutput(int32_t) noexcept { return nullptr; }
  void setInput(int32_t, nvinfer1::ITensor&) noexcept {}
};
#endif

class NetworkDefinition : public Tabled<NetworkDefinition> {
 public:
#if defined(TRT_ET_TENSORRT_RTX)
  int32_t getNbLayers() noexcept { return 0; }
  nvinfer1::ILayer* getLayer(int32_t) noexcept { return nullptr; }
  nvinfer1::IConstantLayer* addConstant(const Dims&, nvinfer1::Weights) noexcept { return nullptr; }
  nvinfer1::IElementWiseLayer* addElementWise(nvinfer1::ITensor&, nvinfer1::ITensor&,
                                              nvinfer1::ElementWiseOperation) noexcept {
    return nullptr;
  }
#endif
  using Tensors = std::vector<std::unique_ptr<Handle<nvinfer1::ITensor, Tensor>>>;

  int32_t getNbInputs() noexcept { return static_cast<int32_t>(inputs.size()); }
  int32_t getNbOutputs() noexcept { return static_cast<int32_t>(outputs.size()); }
  nvinfer1::ITensor* getInput(int32_t i) noexcept { return inputs[static_cast<size_t>(i)].get(); }
  nvinfer1::ITensor* getOutput(int32_t i) noexcept { return outputs[static_cast<size_t>(i)].get(); }

  // Backwards: a parser's order need not be the blob's.
  void add(const Plan& plan) {
    for (auto at = plan.tensors.rbegin(); at != plan.tensors.rend(); ++at) {
      (at->is_input ? inputs : outputs)
          .push_back(std::make_unique<Handle<nvinfer1::ITensor, Tensor>>(*at));
    }
  }

  Tensors inputs, outputs;
  std::string plan;
  std::string unbuildable;
  int steps = 2, milliseconds = 0;
  bool aside = false;
};

class OptimizationProfile : public Tabled<OptimizationProfile> {
 public:
  bool setDimensions(const char* input, nvinfer1::OptProfileSelector which,
                     const Dims& dims) noexcept {
    std::string text;
    for (int i = 0; i < dims.nbDims; ++i) {
      text += (i == 0 ? "" : ",") + std::to_string(dims.d[i]);
    }
    ranges[input][static_cast<size_t>(which)] = text;
    return true;
  }

  std::map<std::string, std::array<std::string, 3>> ranges;
};

class BuilderConfig : public Tabled<BuilderConfig> {
 public:
  void setFlag(nvinfer1::BuilderFlag flag) noexcept {
    if (flag == nvinfer1::BuilderFlag::kWEIGHT_STREAMING) streaming = true;
  }
  int32_t addOptimizationProfile(const nvinfer1::IOptimizationProfile* profile) noexcept {
    using Profile = Handle<nvinfer1::IOptimizationProfile, OptimizationProfile>;
    profiles.push_back(static_cast<const Profile*>(profile)->inside.ranges);
    return static_cast<int32_t>(profiles.size()) - 1;
  }
  void setMemoryPoolLimit(nvinfer1::MemoryPoolType, size_t bytes) noexcept { workspace = bytes; }
  void setBuilderOptimizationLevel(int32_t wanted) noexcept { level = wanted; }
  void setProgressMonitor(nvinfer1::IProgressMonitor* wanted) noexcept { monitor = wanted; }

  std::vector<std::map<std::string, std::array<std::string, 3>>> profiles;
  bool streaming = false;
  size_t workspace = 0;
  int32_t level = -1;
  nvinfer1::IProgressMonitor* monitor = nullptr;
};

class Builder : public Tabled<Builder> {
 public:
  explicit Builder(ILogger& logger) : logger_(logger) {}

  nvinfer1::IBuilderConfig* createBuilderConfig() noexcept {
    return new Handle<nvinfer1::IBuilderConfig, BuilderConfig>;
  }
  nvinfer1::INetworkDefinition* createNetworkV2(uint32_t flags) noexcept {
    using Flag = nvinfer1::NetworkDefinitionCreationFlag;
    if (flags != 1u << static_cast<int>(Flag::kSTRONGLY_TYPED)) return nullptr;
    return new Handle<nvinfer1::INetworkDefinition, NetworkDefinition>;
  }
  nvinfer1::IOptimizationProfile* createOptimizationProfile() noexcept {
    profiles_.push_back(
        std::make_unique<Handle<nvinfer1::IOptimizationProfile, OptimizationProfile>>());
    return profiles_.back().get();
  }

  nvinfer1::IHostMemory* buildSerializedNetwork(nvinfer1::INetworkDefinition& network,
                                                nvinfer1::IBuilderConfig& config) noexcept {
    using Network = Handle<nvinfer1::INetworkDefinition, NetworkDefinition>;
    using Config = Handle<nvinfer1::IBuilderConfig, BuilderConfig>;
    const NetworkDefinition& wanted = static_cast<Network&>(network).inside;
    const BuilderConfig& how = static_cast<Config&>(config).inside;
    if (!call("buildSerializedNetwork", logger_)) return nullptr;
    if (!wanted.unbuildable.empty()) {
      complain(logger_, wanted.unbuildable);
      return nullptr;
    }
    bool finished = false;
    const auto all = [&] { finished = work(wanted, how.monitor); };
    wanted.aside ? std::thread(all).join() : all();
    if (!finished) return nullptr;
    logger_.log(ILogger::Severity::kINFO, ("workspace " + std::to_string(how.workspace) +
                                           ", level " + std::to_string(how.level))
                                              .c_str());
    std::string plan = header() + wanted.plan + (how.streaming ? "streamable 512\n" : "");
    for (const auto& ranges : how.profiles) {
      plan += "profile\n";
      for (const auto& [input, range] : ranges) {
        plan += "range " + input + " " + range[0] + " " + range[1] + " " + range[2] + "\n";
      }
    }
    if (const char* file = std::getenv("TRT_ET_FAKE_ENGINE")) {
      std::stringstream bytes;
      bytes << std::ifstream(file, std::ios::binary).rdbuf();
      plan = bytes.str();
    }
    return new Handle<nvinfer1::IHostMemory, HostMemory>(plan);
  }

 private:
  // As TensorRT's engines begin; see plan_version().
  static std::string header() {
    std::string bytes(32, '\0');
    bytes.replace(0, 4, trt_et::tensorrt::kRtx ? "vtrt" : "ftrt");
    const trt_et::tensorrt::Version& known = version();
    bytes[24] = static_cast<char>(known.major);
    bytes[25] = static_cast<char>(known.minor);
    bytes[26] = static_cast<char>(known.patch);
    return bytes;
  }

  static bool work(const NetworkDefinition& wanted, nvinfer1::IProgressMonitor* monitor) {
    if (monitor != nullptr) monitor->phaseStart("Building engine", nullptr, wanted.steps);
    bool going = true;
    for (int step = 0; going && step < wanted.steps; ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(wanted.milliseconds));
      if (monitor != nullptr) going = monitor->stepComplete("Building engine", step);
    }
    if (monitor != nullptr) monitor->phaseFinish("Building engine");
    return going;
  }

  ILogger& logger_;
  std::vector<std::unique_ptr<nvinfer1::IOptimizationProfile>> profiles_;
};

class ParserError : public Tabled<ParserError> {
 public:
  const char* desc() noexcept { return reason.c_str(); }
  const char* nodeName() noexcept { return node.c_str(); }
  const char* nodeOperator() noexcept { return kind.c_str(); }

  std::string node, kind, reason;
};

// Begins with its table, as TensorRT's does.
class OnnxParser : public Tabled<OnnxParser> {
 public:
  OnnxParser(nvinfer1::INetworkDefinition& network, ILogger& logger)
      : network_(
            static_cast<Handle<nvinfer1::INetworkDefinition, NetworkDefinition>&>(network).inside),
        logger_(logger) {}

  static void destroy(void* parser) { delete static_cast<OnnxParser*>(parser); }

  bool parse(const void* model, size_t size, const char* path) noexcept {
    if (!loadModelProto(model, size, nullptr)) return false;
    const std::string folder = path == nullptr ? "" : std::string(path);
    for (const auto& one : external_) {
      std::ifstream file(folder.substr(0, folder.rfind('/') + 1) + one.location, std::ios::binary);
      std::stringstream bytes;
      bytes << file.rdbuf();
      if (!file) return refuse("", "", "no file of external data: " + one.location);
      read_[one.name] = bytes.str();
    }
    return parseModelProto();
  }
  bool loadModelProto(const void* model, size_t size, const char*) noexcept {
    const std::string bytes(static_cast<const char*>(model), size);
    const size_t begin = bytes.find("fake\n"), end = bytes.find("end\n");
    if (begin == bytes.npos || end == bytes.npos) return refuse("", "", "no plan in the model");
    text_ = bytes.substr(begin, end - begin);
    return trt_et::tensorrt::find_external_initializers(model, size, &external_);
  }
  // The bytes stay the caller's.
  bool loadInitializer(const char* name, const void* bytes, size_t size) noexcept {
    given_[name] = {static_cast<const char*>(bytes), size};
    return true;
  }
  bool parseModelProto() noexcept {
    if (!call("parseModelProto", logger_)) return false;
    std::stringstream lines(text_);
    for (std::string line; std::getline(lines, line);) {
      if (!parse_line(line)) return false;
    }
    Plan plan;
    const std::string problem = parse_plan(network_.plan, &plan);
    if (!problem.empty()) return refuse("", "", problem);
    network_.add(plan);
    return true;
  }
  int32_t getNbErrors() noexcept { return failed_ ? 1 : 0; }
  const void* getError(int32_t) noexcept { return &error_; }
  const char* const* getUsedVCPluginLibraries(int64_t&) noexcept { return nullptr; }

 private:
  bool refuse(const std::string& node, const std::string& kind, const std::string& reason) {
    error_.node = node;
    error_.kind = kind;
    error_.reason = reason;
    failed_ = true;
    return false;
  }

  // Null: there is no such initializer.
  const char* bytes_of(const std::string& name) const {
    const auto given = given_.find(name);
    if (given != given_.end()) return given->second.first;
    const auto read = read_.find(name);
    return read == read_.end() ? nullptr : read->second.data();
  }

  bool parse_line(const std::string& line) {
    std::stringstream words(line);
    std::string kind, a, b, name, rest;
    words >> kind >> a >> b;
    if (kind == "refuse") return std::getline(words, rest), refuse(a, b, rest.substr(1));
    if (kind == "unbuildable") return network_.unbuildable = line.substr(kind.size() + 1), true;
    if (kind == "steps") {
      network_.steps = std::stoi(a);
      network_.milliseconds = std::stoi(b);
      network_.aside = words >> rest && rest == "aside";
      return true;
    }
    if (kind != "scale_by") return network_.plan += line + "\n", true;
    words >> name;
    float factor = 0;
    const char* bytes = bytes_of(name);
    if (bytes == nullptr) return refuse(name, "Constant", "no bytes");
    std::memcpy(&factor, bytes, sizeof factor);
    network_.plan += "scale " + a + " " + b + " " + std::to_string(factor) + "\n";
    return true;
  }

  NetworkDefinition& network_;
  ILogger& logger_;
  std::string text_;
  std::vector<trt_et::tensorrt::ExternalInitializer> external_;
  std::map<std::string, std::pair<const char*, size_t>> given_;
  std::map<std::string, std::string> read_;
  ParserError error_;
  bool failed_ = false;
};

}  // namespace fake
