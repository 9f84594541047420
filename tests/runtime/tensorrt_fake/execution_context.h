// An execution context of the fake TensorRT.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime_cache.h"
#if defined(TRT_ET_FAKE_ON_GPU)
#include "gpu_run.h"
#else
#include "host_run.h"
#endif

namespace fake {

class ExecutionContext : public Tabled<ExecutionContext> {
 public:
  ExecutionContext(ILogger& logger, std::shared_ptr<const Plan> plan, const Prepared& prepared,
                   int device)
      : logger_(logger), plan_(std::move(plan)), prepared_(prepared), device_(device) {
    const size_t count = plan_->tensors.size();
    addresses_.resize(count);
    data_dependent_.resize(count);
    for (const PlanTensor& tensor : plan_->tensors) shapes_.push_back(tensor.dims);
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
      const PlanTensor& tensor = plan_->tensors[i];
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
    Run run{plan_, device_, addresses_, {}, data_dependent_, shapes_, user_memory_};
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
      run.counts.push_back(elements(shapes_[i]));
    }
    compile();
    for (const PlanLayer& layer : plan_->layers) {
      if (profiler_ != nullptr) profiler_->reportLayerTime(layer.name.c_str(), 0.5F);
    }
    return queue(std::move(run), prepared_, stream);
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
  const Prepared& prepared_;  // The engine's, which outlives its contexts.
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

}  // namespace fake
