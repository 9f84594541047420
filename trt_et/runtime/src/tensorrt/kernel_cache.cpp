#include "kernel_cache.h"

#if defined(TRT_ET_TENSORRT_RTX)

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace trt_et::tensorrt {
namespace {

namespace fs = std::filesystem;

// Empty: nowhere.
fs::path folder_of(const std::string& option) {
  if (option == "off") return {};
  if (!option.empty()) return option;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "trt-et" / "kernels";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return {};
  return fs::path(home) / ".cache" / "trt-et" / "kernels";
}

// Kernels are of one engine, one kind of GPU and one version of the library.
std::string file_name(const trt_et_engine_request& request, const Version& version) {
  std::string gpu = request.gpu;
  for (char& c : gpu) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return std::string(request.sha256).substr(0, 32) + "-" + gpu + "-" + version.text() + ".kernels";
}

void warn(const std::string& text) { host().log(TRT_ET_LOG_WARNING, text.c_str()); }

// A reader finds the old file or the new one, never a part.
bool write_atomically(const fs::path& path, const std::string& bytes) {
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  const fs::path part = path.string() + "." + std::to_string(getpid());
  std::ofstream out(part, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  std::error_code failed;
  if (out.good()) fs::rename(part, path, failed);
  if (out.good() && !failed) return true;
  fs::remove(part, ignored);
  return false;
}

}  // namespace

void KernelCache::open(nvinfer1::ICudaEngine& engine, const trt_et_engine_request& request,
                       const Version& version) {
  const fs::path folder = folder_of(request.runtime_cache);
  if (folder.empty() || *request.sha256 == '\0') return;
  const std::unique_ptr<nvinfer1::IRuntimeConfig> config(engine.createRuntimeConfig());
  if (config != nullptr) cache_.reset(config->createRuntimeCache());
  if (cache_ == nullptr) return;
  path_ = folder / file_name(request, version);
  std::ifstream in(path_, std::ios::binary);
  if (!in) return;
  saved_.assign(std::istreambuf_iterator<char>(in), {});
  if (cache_->deserialize(saved_.data(), saved_.size())) return;
  warn("kernel cache is not usable and will be written anew: " + path_);
  saved_.clear();
}

nvinfer1::IExecutionContext* KernelCache::create_context(nvinfer1::ICudaEngine& engine,
                                                         bool user_memory, bool graphs) {
  using Memory = nvinfer1::ExecutionContextAllocationStrategy;
  auto& config = configs_[(user_memory ? 1 : 0) + (graphs ? 2 : 0)];
  if (config == nullptr) {
    config.reset(engine.createRuntimeConfig());
    if (config == nullptr) return nullptr;
    config->setExecutionContextAllocationStrategy(user_memory ? Memory::kUSER_MANAGED
                                                              : Memory::kSTATIC);
    if (cache_ != nullptr) (void)config->setRuntimeCache(*cache_);
    using Graphs = nvinfer1::CudaGraphStrategy;
    (void)config->setCudaGraphStrategy(graphs ? Graphs::kWHOLE_GRAPH_CAPTURE : Graphs::kDISABLED);
  }
  return engine.createExecutionContext(config.get());
}

void KernelCache::save() noexcept {
  try {
    bool written = true;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (cache_ == nullptr) return;
      const std::unique_ptr<nvinfer1::IHostMemory> bytes(cache_->serialize());
      if (bytes == nullptr || bytes->size() == 0) return;
      std::string now(static_cast<const char*>(bytes->data()), bytes->size());
      if (now == saved_) return;
      written = write_atomically(path_, now);
      saved_ = std::move(now);
    }
    if (!written) warn("kernel cache cannot be written: " + path_);
  } catch (...) {  // No memory, or no file system to speak of: kernels are compiled again.
  }
}

}  // namespace trt_et::tensorrt

#endif
