// What TensorRT-RTX compiles at run time, kept in a file for the next process. Other TensorRTs
// compile nothing then: there, this makes contexts and nothing else.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "provider_status.h"
#include "version.h"

namespace trt_et::tensorrt {

// One engine's. Nothing that goes wrong with the file fails anything: it is logged, and kernels are
// compiled again.
class KernelCache {
 public:
#if defined(TRT_ET_TENSORRT_RTX)
  // Reads the file of this engine, GPU and library version.
  void open(nvinfer1::ICudaEngine& engine, const trt_et_engine_request& request,
            const Version& version);
  // With `graphs`, the library records CUDA graphs of its own.
  nvinfer1::IExecutionContext* create_context(nvinfer1::ICudaEngine& engine, bool user_memory,
                                              bool graphs);
  // Writes the file where there are new kernels.
  void save() noexcept;

 private:
  std::mutex mutex_;
  std::string path_;   // empty: no file
  std::string saved_;  // what the file holds
  std::unique_ptr<nvinfer1::IRuntimeCache> cache_;
  // One for each kind of context; they live as long as the contexts.
  std::map<int, std::unique_ptr<nvinfer1::IRuntimeConfig>> configs_;
#else
  void open(nvinfer1::ICudaEngine&, const trt_et_engine_request&, const Version&) {}
  nvinfer1::IExecutionContext* create_context(nvinfer1::ICudaEngine& engine, bool user_memory,
                                              bool) {
    return tensorrt::create_context(engine, user_memory);
  }
  void save() noexcept {}
#endif
};

}  // namespace trt_et::tensorrt
