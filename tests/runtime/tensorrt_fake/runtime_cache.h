// TensorRT-RTX's cache of compiled kernels, and the configuration that holds it.
#pragma once

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "services.h"

namespace fake {

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
  // TRT_ET_FAKE_SLOW_CACHE names a file: adds to it, and takes as long as it is there.
  nvinfer1::IHostMemory* serialize() noexcept {
    if (const char* gate = std::getenv("TRT_ET_FAKE_SLOW_CACHE")) {
      std::ofstream(gate, std::ios::in | std::ios::out) << "reached";
      while (std::ifstream(gate)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
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

}  // namespace fake
