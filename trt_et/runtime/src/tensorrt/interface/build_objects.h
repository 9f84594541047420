// The objects of TensorRT's interface that build an engine, with the methods that we call.
#pragma once

#include "objects.h"

namespace trt_et::nvinfer {

class ITensor : public Object {
 public:
  const char* getName() const noexcept { return slots::Tensor_getName::call(implementation_); }
  Dims getDimensions() const noexcept { return slots::Tensor_getDimensions::call(implementation_); }
  DataType getType() const noexcept { return slots::Tensor_getType::call(implementation_); }
};

class INetworkDefinition : public Object {
 public:
  int32_t getNbInputs() const noexcept {
    return slots::NetworkDefinition_getNbInputs::call(implementation_);
  }
  ITensor* getInput(int32_t index) const noexcept {
    return slots::NetworkDefinition_getInput::call(implementation_, index);
  }
  int32_t getNbOutputs() const noexcept {
    return slots::NetworkDefinition_getNbOutputs::call(implementation_);
  }
  ITensor* getOutput(int32_t index) const noexcept {
    return slots::NetworkDefinition_getOutput::call(implementation_, index);
  }
};

class IOptimizationProfile : public Object {
 public:
  bool setDimensions(const char* input, OptProfileSelector which, const Dims& dims) noexcept {
    return slots::OptimizationProfile_setDimensions::call(implementation_, input, which, dims);
  }
};

class IBuilderConfig : public Object {
 public:
  void setFlag(BuilderFlag flag) noexcept {
    slots::BuilderConfig_setFlag::call(implementation_, flag);
  }
  int32_t addOptimizationProfile(const IOptimizationProfile* profile) noexcept {
    return slots::BuilderConfig_addOptimizationProfile::call(implementation_, profile);
  }
  void setMemoryPoolLimit(MemoryPoolType pool, size_t bytes) noexcept {
    slots::BuilderConfig_setMemoryPoolLimit::call(implementation_, pool, bytes);
  }
  void setBuilderOptimizationLevel(int32_t level) noexcept {
    slots::BuilderConfig_setBuilderOptimizationLevel::call(implementation_, level);
  }
  void setProgressMonitor(IProgressMonitor* monitor) noexcept {
    slots::BuilderConfig_setProgressMonitor::call(implementation_, monitor);
  }
};

class IBuilder : public Object {
 public:
  IBuilderConfig* createBuilderConfig() noexcept {
    return slots::Builder_createBuilderConfig::call(implementation_);
  }
  INetworkDefinition* createNetworkV2(uint32_t flags) noexcept {
    return slots::Builder_createNetworkV2::call(implementation_, flags);
  }
  // The builder's.
  IOptimizationProfile* createOptimizationProfile() noexcept {
    return slots::Builder_createOptimizationProfile::call(implementation_);
  }
  IHostMemory* buildSerializedNetwork(INetworkDefinition& network,
                                      IBuilderConfig& config) noexcept {
    return slots::Builder_buildSerializedNetwork::call(implementation_, network, config);
  }
};

// One error of the parser, which owns it.
class ParserError {
 public:
  explicit ParserError(const void* error) : error_(const_cast<void*>(error)) {}
  const char* desc() const noexcept { return slots::ParserError_desc::call(error_); }
  const char* nodeName() const noexcept { return slots::ParserError_nodeName::call(error_); }
  const char* nodeOperator() const noexcept {
    return slots::ParserError_nodeOperator::call(error_);
  }

 private:
  void* error_;
};

// Owns a parser, whose table is the object's own.
class OnnxParser {
 public:
  explicit OnnxParser(void* parser) : parser_(parser) {}
  OnnxParser(const OnnxParser&) = delete;
  OnnxParser& operator=(const OnnxParser&) = delete;
  ~OnnxParser() {
    using Destroy = Slot<slots::OnnxParser_getUsedVCPluginLibraries::kNumber - 1, 0, void()>;
    Destroy::call(parser_);
  }

  bool parse(const void* model, size_t size, const char* path) noexcept {
    return slots::OnnxParser_parse::call(parser_, model, size, path);
  }
  bool loadModelProto(const void* model, size_t size, const char* path) noexcept {
    return slots::OnnxParser_loadModelProto::call(parser_, model, size, path);
  }
  // The bytes must outlive the parser.
  bool loadInitializer(const char* name, const void* bytes, size_t size) noexcept {
    return slots::OnnxParser_loadInitializer::call(parser_, name, bytes, size);
  }
  bool parseModelProto() noexcept { return slots::OnnxParser_parseModelProto::call(parser_); }
  int32_t getNbErrors() const noexcept { return slots::OnnxParser_getNbErrors::call(parser_); }
  ParserError getError(int32_t index) const noexcept {
    return ParserError(slots::OnnxParser_getError::call(parser_, index));
  }

 private:
  void* parser_;
};

}  // namespace trt_et::nvinfer
