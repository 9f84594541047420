#include "streams.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace trt_et {
namespace {

struct OwnedStream {
  OwnedStream(cuda::Api& owner, int index, cuda::Stream handle)
      : api(owner), device(index), stream(handle) {}
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  ~OwnedStream() {
    // CUDA lets queued work finish after this, but a new stream may get the same handle, and
    // delegates tell by the handle whether their last run is on it.
    (void)report(api.synchronize_stream(stream));
    (void)report(api.destroy_stream(stream));
  }

  cuda::Api& api;
  const int device;
  const cuda::Stream stream;
};

using Owned = std::shared_ptr<OwnedStream>;

// All threads' streams. Never destroyed: threads may end after this library's static objects.
struct Registry {
  std::mutex mutex;
  std::vector<Owned> streams;
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

struct ThreadStreams {
  std::vector<Owned> by_device;

  ~ThreadStreams() {
    Registry& all = registry();
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (const Owned& owned : by_device) {
      if (owned == nullptr) continue;
      const auto found = std::find(all.streams.begin(), all.streams.end(), owned);
      if (found != all.streams.end()) all.streams.erase(found);
    }
  }
};

// A plain pointer survives the destruction of thread-local objects: static objects of the program
// may still execute methods after those of the main thread are gone.
thread_local ThreadStreams* t_streams = nullptr;

struct ThreadCleanup {
  ~ThreadCleanup() {
    delete t_streams;
    t_streams = nullptr;
  }
};

ThreadStreams& this_threads_streams() {
  static thread_local ThreadCleanup cleanup;
  (void)cleanup;
  if (t_streams == nullptr) t_streams = new ThreadStreams;
  return *t_streams;
}

// Streams that this thread's caller wants used, by device; no destructor, for the same reason.
constexpr int kMaxDevices = 128;
thread_local cuda::Stream t_given[kMaxDevices] = {};

// executorch::extension::cuda::getCallerStream(). ExecuTorch promises that its result crosses
// library boundaries; a stream handle is a pointer.
using GetCallerStream = std::optional<cuda::Stream> (*)();
std::atomic<GetCallerStream> g_get_caller_stream{nullptr};

// The stream of the innermost CallerStreamGuard of this thread, if it is of this device.
Status guarded_stream(cuda::Api& api, int device, cuda::Stream* stream) {
  const GetCallerStream get = g_get_caller_stream.load(std::memory_order_acquire);
  const auto given = get == nullptr ? std::nullopt : get();
  if (!given || *given == nullptr) return {};
  int owner = 0;
  TRT_ET_TRY(api.stream_device(*given, &owner));
  if (owner == device) *stream = *given;
  return {};
}

}  // namespace

void find_caller_streams() {
  if (g_get_caller_stream.load() != nullptr) return;
  g_get_caller_stream = reinterpret_cast<GetCallerStream>(
      dlsym(RTLD_DEFAULT, "_ZN10executorch9extension4cuda15getCallerStreamEv"));
}

Status use_stream(cuda::Api& api, int device, cuda::Stream stream) {
  int count = 0;
  TRT_ET_TRY(api.device_count(&count));
  if (device < 0 || device >= count || device >= kMaxDevices) {
    return fail(Error::InvalidArgument, "no stream for cuda:%d: this machine has %d GPU(s)", device,
                count);
  }
  t_given[device] = stream;
  return {};
}

Status thread_stream(cuda::Api& api, int device, cuda::Stream* stream) {
  if (device < kMaxDevices && t_given[device] != nullptr) {
    *stream = t_given[device];
    return {};
  }
  *stream = nullptr;
  TRT_ET_TRY(guarded_stream(api, device, stream));
  if (*stream != nullptr) return {};
  auto& streams = this_threads_streams().by_device;
  const auto index = static_cast<size_t>(device);
  if (index >= streams.size()) streams.resize(index + 1);
  if (streams[index] == nullptr) {
    cuda::Stream created = nullptr;
    TRT_ET_TRY(api.create_stream(&created));
    streams[index] = std::make_shared<OwnedStream>(api, device, created);
    Registry& all = registry();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.streams.push_back(streams[index]);
  }
  *stream = streams[index]->stream;
  return {};
}

Status synchronize_device(cuda::Api& api, int device) {
  const auto& own = this_threads_streams().by_device;
  std::vector<Owned> streams;
  {
    // Copied, so that no thread has to wait for another's work to get a stream.
    Registry& all = registry();
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (const Owned& owned : all.streams) {
      if (owned->device == device) streams.push_back(owned);
    }
  }
  Status status;
  for (const Owned& owned : streams) {
    Status one = api.synchronize_stream(owned->stream);
    if (one.ok()) continue;
    if (std::find(own.begin(), own.end(), owned) != own.end()) {
      status = std::move(one);
    } else {
      (void)report(one);
    }
  }
  return status;
}

Status order_streams(cuda::Api& api, int earlier_device, cuda::Stream earlier, int later_device,
                     cuda::Stream later) {
  cuda::Event event = nullptr;
  TRT_ET_TRY(api.set_device(earlier_device));
  TRT_ET_TRY(api.create_event(&event));
  Status status = api.record_event(event, earlier);
  if (status.ok()) status = api.set_device(later_device);
  if (status.ok()) status = api.wait_event(later, event);
  // CUDA releases an event that is still being waited for once that wait is over.
  (void)api.destroy_event(event);
  return status;
}

}  // namespace trt_et
