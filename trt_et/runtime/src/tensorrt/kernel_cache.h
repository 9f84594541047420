// What TensorRT-RTX compiles at run time, kept in a file for the next process. Other TensorRTs
// compile nothing then: there, this makes contexts and nothing else.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/provider_status.h"
#include "files.h"
#include "version.h"

namespace trt_et::tensorrt {

// One engine's. Nothing that goes wrong with the file fails anything: it is logged, and kernels are
// compiled again.
class KernelCache {
 public:
#if defined(TRT_ET_TENSORRT_RTX)
  // Writes the file. After the contexts, and before the engine.
  ~KernelCache();

  // Reads the file of this engine, GPU and library version.
  void open(nvinfer1::ICudaEngine& engine, const trt_et_engine_request& request,
            const Version& version);
  // With `graphs`, the library records CUDA graphs of its own.
  nvinfer1::IExecutionContext* create_context(nvinfer1::ICudaEngine& engine, bool user_memory,
                                              bool graphs);
  // There may be new kernels, or there soon will be: the file is written a little later.
  void expect_kernels() noexcept;
  // Writes the file if there are new kernels. Returns why not, to be logged; "" where all is well.
  std::string save() noexcept;

 private:
  std::string merged_with_file(const std::string& own) const;
  // 0, or why the file cannot be written.
  int write();

  std::mutex mutex_;
  CacheFolder folder_;
  std::string path_;             // empty: no file
  size_t saved_ = 0;             // a hash of those of our kernels that are in the file
  std::atomic<int> problem_{0};  // of the last write
  std::unique_ptr<nvinfer1::IRuntimeConfig> maker_;  // of caches
  std::unique_ptr<nvinfer1::IRuntimeCache> cache_;
  // One for each kind of context; they live as long as the contexts.
  std::map<int, std::unique_ptr<nvinfer1::IRuntimeConfig>> configs_;
#else
  void open(nvinfer1::ICudaEngine&, const trt_et_engine_request&, const Version&) {}
  nvinfer1::IExecutionContext* create_context(nvinfer1::ICudaEngine& engine, bool user_memory,
                                              bool) {
    return tensorrt::create_context(engine, user_memory);
  }
  void expect_kernels() noexcept {}
#endif
};

// Writes the files of all engines that are loaded.
void save_kernels() noexcept;

}  // namespace trt_et::tensorrt
