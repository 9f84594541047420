#include "kernel_cache.h"

#if defined(TRT_ET_TENSORRT_RTX)

#include <pthread.h>

#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace trt_et::tensorrt {
namespace {

// Kernels are of one engine, one kind of GPU and one version of the library.
std::string file_name(const trt_et_engine_request& request, const Version& version) {
  std::string gpu = request.gpu;
  for (char& c : gpu) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return std::string(request.sha256).substr(0, 32) + "-" + gpu + "-" + version.text() + ".kernels";
}

void tell(const std::string& text) {
  if (!text.empty()) host().log(TRT_ET_LOG_OWN, ("kernel cache " + text).c_str());
}

// The reason first: a long path is cut off.
std::string problem_text(const char* what, int problem, const std::string& path) {
  return std::string(what) + ": " + std::strerror(problem) + ": " + path;
}

// Set in a child of a process that uses this library: the thread of KernelSaver is not there,
// locks may be held by threads that are not there either, and TensorRT must not be called.
std::atomic<bool> g_forked{false};

std::string serialized(const nvinfer1::IRuntimeCache& cache) {
  const std::unique_ptr<nvinfer1::IHostMemory> bytes(cache.serialize());
  if (bytes == nullptr) return "";
  return {static_cast<const char*>(bytes->data()), bytes->size()};
}

using std::chrono::seconds;

constexpr seconds kSoon{2};
constexpr seconds kLater{30};
constexpr seconds kTick{1};
constexpr seconds kIdle{3600};

// Writes kernel caches a little after an engine's shapes have changed: a server that is killed has
// kept what was compiled. One thread for all engines.
class KernelSaver {
 public:
  // Never destroyed: an engine may be freed at the very end of the process. But before the
  // libraries that it uses are gone, its thread ends, and what is not written yet is.
  static KernelSaver& instance() {
    static auto* saver = [] {
      auto* created = new KernelSaver;
      (void)pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
      (void)std::atexit([] {
        if (g_forked) return;
        KernelSaver& last = instance();
        {
          const std::lock_guard<std::mutex> lock(last.mutex_);
          last.stopped_ = true;
        }
        last.changed_.notify_all();
        if (last.thread_.joinable()) last.thread_.join();
        last.save_all();
      });
      return created;
    }();
    return *saver;
  }

  // Writes the cache's file soon, and once more when the library has compiled what it compiles
  // beside the runs.
  void expect(KernelCache* cache) noexcept {
    if (g_forked) return;
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stopped_) return;
      Plan& plan = plans_[cache];
      // Shapes that change all the time do not put it off.
      if (plan.saves < 2) plan = {Clock::now() + kSoon, 2};
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    } catch (...) {  // No memory or no thread: the file is written when the engine goes.
    }
    changed_.notify_all();
  }

  // Waits while the cache is being written.
  void forget(KernelCache* cache) noexcept {
    if (g_forked) return;
    std::unique_lock<std::mutex> lock(mutex_);
    while (busy_ == cache) (void)changed_.wait_for(lock, kSoon);
    plans_.erase(cache);
  }

  // Writes every cache now.
  void save_all() noexcept {
    if (g_forked) return;
    std::unique_lock<std::mutex> lock(mutex_);
    try {
      std::vector<KernelCache*> caches;
      for (const auto& [cache, plan] : plans_) caches.push_back(cache);
      for (KernelCache* cache : caches) save(cache, &lock);
    } catch (...) {  // No memory: they are written when their engines go.
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Plan {
    Clock::time_point due;
    int saves = 0;  // that are left
  };

  KernelSaver() = default;

  // Lets go of the lock while a file is written, and of the cache before its failure is told: the
  // program's log function may save kernels and free engines. TensorRT's own lines come meanwhile.
  void save(KernelCache* cache, std::unique_lock<std::mutex>* lock) {
    if (busy_ != nullptr && writer_ == std::this_thread::get_id()) return;
    while (busy_ != nullptr) (void)changed_.wait_for(*lock, kSoon);
    if (plans_.count(cache) == 0) return;
    busy_ = cache;
    writer_ = std::this_thread::get_id();
    lock->unlock();
    const std::string problem = cache->save();
    lock->lock();
    busy_ = nullptr;
    changed_.notify_all();
    if (problem.empty()) return;
    lock->unlock();
    tell(problem);
    lock->lock();
  }

  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopped_) {
      const auto now = Clock::now();
      auto left = plans_.end(), due = plans_.end();
      for (auto plan = plans_.begin(); plan != plans_.end(); ++plan) {
        if (plan->second.saves > 0) left = plan;
        if (left == plan && plan->second.due <= now) due = plan;
      }
      if (due == plans_.end()) {
        (void)changed_.wait_for(lock, left == plans_.end() ? kIdle : kTick);
        continue;
      }
      due->second = {now + kLater, due->second.saves - 1};
      save(due->first, &lock);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<KernelCache*, Plan> plans_;
  KernelCache* busy_ = nullptr;  // is being written
  std::thread::id writer_;       // by this thread
  std::thread thread_;
  bool stopped_ = false;
};

}  // namespace

KernelCache::~KernelCache() {
  KernelSaver::instance().forget(this);
  tell(save());
}

void KernelCache::open(nvinfer1::ICudaEngine& engine, const trt_et_engine_request& request,
                       const Version& version) {
  if (*request.sha256 == '\0') return;
  folder_ = cache_folder(request.runtime_cache, "kernels");
  if (!folder_.problem.empty()) tell("is not used: " + folder_.problem);
  if (folder_.path.empty()) return;
  maker_.reset(engine.createRuntimeConfig());
  if (maker_ != nullptr) cache_.reset(maker_->createRuntimeCache());
  if (cache_ == nullptr) return;
  path_ = folder_.path / file_name(request, version);
  std::string file;
  if (!read_file(path_, &file)) {
    if (errno != ENOENT) tell(problem_text("cannot be read", errno, path_));
  } else if (cache_->deserialize(file.data(), file.size())) {
    saved_ = std::hash<std::string>()(serialized(*cache_));
  } else {
    tell("is not usable and will be written anew: " + path_);
  }
}

void KernelCache::expect_kernels() noexcept {
  if (cache_ != nullptr) KernelSaver::instance().expect(this);
}

// The kernels of another process and ours. What is in the file is given to a cache of its own: the
// engine's is in use.
std::string KernelCache::merged_with_file(const std::string& own) const {
  std::string file;
  if (!read_file(path_, &file) || file == own) return own;
  const std::unique_ptr<nvinfer1::IRuntimeCache> both(maker_->createRuntimeCache());
  if (both == nullptr || !both->deserialize(file.data(), file.size()) ||
      !both->deserialize(own.data(), own.size())) {
    return own;
  }
  std::string merged = serialized(*both);
  return merged.empty() ? own : merged;
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

// For the lock of another process. The process that waits may be about to end, and then the file is
// written without the other's kernels.
constexpr std::chrono::milliseconds kLockPatience{100};

int KernelCache::write() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (cache_ == nullptr) return 0;
  const std::string own = serialized(*cache_);
  const size_t hash = std::hash<std::string>()(own);
  if (own.empty() || hash == saved_) return 0;
  if (!folder_.make()) return errno;
  FileLock lock_of_file;
  const bool alone = lock_of_file.take(path_ + ".lock", kLockPatience, {}, folder_.file_mode());
  if (alone) remove_old_parts(path_ + ".");
  const std::string all = alone ? merged_with_file(own) : own;
  if (!write_atomically(path_, path_ + ".", {all}, folder_.file_mode())) return errno;
  saved_ = hash;
  return 0;
}

std::string KernelCache::save() noexcept {
  if (g_forked) return "";
  try {
    const int problem = write();
    // It is tried again each time, and told once.
    const bool is_new = problem_.exchange(problem) != problem;
    return problem == 0 || !is_new ? "" : problem_text("cannot be written", problem, path_);
  } catch (...) {  // No memory, or no file system to speak of: kernels are compiled again.
    return "";
  }
}

void save_kernels() noexcept { KernelSaver::instance().save_all(); }

}  // namespace trt_et::tensorrt

#else

namespace trt_et::tensorrt {
void save_kernels() noexcept {}
}  // namespace trt_et::tensorrt

#endif
