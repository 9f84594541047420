// The objects of TensorRT's interface that build an engine, with the methods that we call.
#pragma once

#include "objects.h"

namespace trt_et::nvinfer {

class ITensor : public Object {
 public:
  TRT_ET_METHOD(Tensor, getName)
  TRT_ET_METHOD(Tensor, getDimensions)
  TRT_ET_METHOD(Tensor, getType)
};

class ILayer : public Object {
 public:
  TRT_ET_METHOD(Layer, getType)
  TRT_ET_METHOD(Layer, getNbInputs)
  TRT_ET_METHOD(Layer, getInput)
  TRT_ET_METHOD(Layer, getOutput)
  TRT_ET_METHOD(Layer, setInput)
};

class IConstantLayer : public ILayer {};
class IElementWiseLayer : public ILayer {};

class INetworkDefinition : public Object {
 public:
  TRT_ET_METHOD(NetworkDefinition, addConstant)
  TRT_ET_METHOD(NetworkDefinition, addElementWise)
  TRT_ET_METHOD(NetworkDefinition, getNbLayers)
  TRT_ET_METHOD(NetworkDefinition, getLayer)
  TRT_ET_METHOD(NetworkDefinition, getNbInputs)
  TRT_ET_METHOD(NetworkDefinition, getInput)
  TRT_ET_METHOD(NetworkDefinition, getNbOutputs)
  TRT_ET_METHOD(NetworkDefinition, getOutput)
};

class IOptimizationProfile : public Object {
 public:
  TRT_ET_METHOD(OptimizationProfile, setDimensions)
};

class IBuilderConfig : public Object {
 public:
  TRT_ET_METHOD(BuilderConfig, setFlag)
  TRT_ET_METHOD(BuilderConfig, addOptimizationProfile)
  TRT_ET_METHOD(BuilderConfig, setMemoryPoolLimit)
  TRT_ET_METHOD(BuilderConfig, setBuilderOptimizationLevel)
  TRT_ET_METHOD(BuilderConfig, setProgressMonitor)
};

class IBuilder : public Object {
 public:
  TRT_ET_METHOD(Builder, createBuilderConfig)
  TRT_ET_METHOD(Builder, createNetworkV2)
  TRT_ET_METHOD(Builder, createOptimizationProfile)  // The builder owns it.
  TRT_ET_METHOD(Builder, buildSerializedNetwork)
};

// What begins with its table itself, and has no other half of ours.
class Bare {
 public:
  explicit Bare(const void* object) : implementation_(const_cast<void*>(object)) {}

 protected:
  void* implementation_;
};

// One error of the parser, which owns it.
class ParserError : public Bare {
 public:
  using Bare::Bare;
  TRT_ET_METHOD(ParserError, desc)
  TRT_ET_METHOD(ParserError, nodeName)
  TRT_ET_METHOD(ParserError, nodeOperator)
};

// Owns a parser.
class OnnxParser : public Bare {
 public:
  using Bare::Bare;
  OnnxParser(const OnnxParser&) = delete;
  OnnxParser& operator=(const OnnxParser&) = delete;
  ~OnnxParser() {
    using Destroy = Slot<slots::OnnxParser_getUsedVCPluginLibraries::kNumber - 1, 0, void()>;
    Destroy::call(implementation_);
  }

  TRT_ET_METHOD(OnnxParser, parse)
  TRT_ET_METHOD(OnnxParser, loadModelProto)
  TRT_ET_METHOD(OnnxParser, loadInitializer)  // Its bytes must outlive the parser.
  TRT_ET_METHOD(OnnxParser, parseModelProto)
  TRT_ET_METHOD(OnnxParser, getNbErrors)
  ParserError getError(int32_t index) const noexcept {
    return ParserError(slots::OnnxParser_getError::call(implementation_, index));
  }
};

}  // namespace trt_et::nvinfer
