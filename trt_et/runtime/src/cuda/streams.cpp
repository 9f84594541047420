#include "streams.h"

#include <dlfcn.h>

#include <atomic>
#include <map>
#include <optional>
#include <utility>

// Null unless this program or library contains ExecuTorch's CUDA extension. ExecuTorch promises
// that the result crosses library boundaries; a stream handle is a pointer.
namespace executorch::extension::cuda {
__attribute__((weak)) std::optional<void*> getCallerStream();
}  // namespace executorch::extension::cuda

namespace trt_et {
namespace {

constexpr uint64_t kLegacyIdentity = 1;

uint64_t next_identity() {
  static std::atomic<uint64_t> last{kLegacyIdentity};
  return ++last;
}

struct OwnedStream {
  OwnedStream(cuda::Api& owner, int index) : api(owner), device(index) {}
  ~OwnedStream() {
    if (stream == nullptr || cuda::is_ending()) return;
    cuda::DeviceGuard guard(api);
    (void)report(guard.enter(device));
    // CUDA finishes what is queued.
    (void)report(api.destroy_stream(stream));
  }

  WorkStream work() const { return {stream, identity, WorkStream::Source::own, is_known, false}; }

  cuda::Api& api;
  const int device;
  cuda::Stream stream = nullptr;
  const uint64_t identity = next_identity();
  bool is_known = false;  // to the caller, who may capture it
};

using ThreadStreams = std::map<int, OwnedStream>;  // by device

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
struct Given {
  cuda::Stream stream;
  uint64_t identity;  // a number for as long as it is given
  bool is_green;
};
thread_local Given t_given[kMaxDevices] = {};

using GetCallerStream = std::optional<cuda::Stream> (*)();
constexpr const char* kGetCallerStream = "_ZN10executorch9extension4cuda15getCallerStreamEv";
std::atomic<GetCallerStream> g_get_caller_stream{executorch::extension::cuda::getCallerStream};
// The program's own, where that function is linked into it and exported by nobody.
std::atomic<CallerStreamSource> g_source{nullptr};

std::optional<cuda::Stream> caller_stream() {
  if (const CallerStreamSource source = g_source.load(std::memory_order_acquire)) {
    cuda::Stream stream = nullptr;
    return source(&stream) != 0 ? std::optional<cuda::Stream>(stream) : std::nullopt;
  }
  const GetCallerStream get = g_get_caller_stream.load(std::memory_order_acquire);
  return get == nullptr ? std::nullopt : get();
}

bool is_default(cuda::Stream stream) {
  return stream == nullptr || stream == cuda::kLegacyStream || stream == cuda::kPerThreadStream;
}

WorkStream callers_stream(cuda::Stream stream, WorkStream::Source source, bool is_green) {
  static thread_local const uint64_t per_thread = next_identity();
  if (stream == nullptr) stream = cuda::kLegacyStream;
  const uint64_t identity = stream == cuda::kLegacyStream      ? kLegacyIdentity
                            : stream == cuda::kPerThreadStream ? per_thread
                                                               : 0;
  const bool may_be_captured = stream != cuda::kLegacyStream;
  return {stream, identity, source, may_be_captured, is_green};
}

WorkStream given_stream(int device) {
  const Given& given = t_given[device];
  WorkStream stream = callers_stream(given.stream, WorkStream::Source::given, given.is_green);
  if (stream.identity == 0) stream.identity = given.identity;
  return stream;
}

// Whether the innermost CallerStreamGuard of this thread holds a stream for this device.
Status guarded_stream(cuda::Api& api, int device, WorkStream* stream, bool* found) {
  *found = false;
  const auto given = caller_stream();
  if (!given) return {};
  int owner = device;  // Every device has default streams.
  bool green = false;
  if (!is_default(*given)) TRT_ET_TRY(api.stream_device(*given, &owner, &green));
  *found = owner == device;
  if (*found) *stream = callers_stream(*given, WorkStream::Source::guard, green);
  return {};
}

}  // namespace

// Python opens the extension for itself (RTLD_LOCAL), and before this library.
void find_caller_streams(const char* extension) {
  if (g_get_caller_stream.load() != nullptr) return;
  void* library = dlopen(extension, RTLD_LAZY | RTLD_NOLOAD);  // It stays open.
  if (library == nullptr) return;
  g_get_caller_stream = reinterpret_cast<GetCallerStream>(dlsym(library, kGetCallerStream));
}

void set_caller_stream_source(CallerStreamSource source) { g_source = source; }

static Status check_device(cuda::Api& api, int device) {
  int count = 0;
  TRT_ET_TRY(api.device_count(&count));
  if (device >= 0 && device < count && device < kMaxDevices) return {};
  return fail(Error::InvalidArgument, "no stream for cuda:%d: this machine has %d GPU(s)", device,
              count);
}

Status use_stream(cuda::Api& api, int device, cuda::Stream stream) {
  TRT_ET_TRY(check_device(api, device));
  bool green = false;
  if (!is_default(stream)) {
    int owner = 0;
    TRT_ET_TRY(api.stream_device(stream, &owner, &green));
    if (owner != device) {
      return fail(Error::InvalidArgument, "the stream for cuda:%d is one of cuda:%d", device,
                  owner);
    }
  }
  t_given[device] = {stream, next_identity(), green};
  return {};
}

Status thread_stream(cuda::Api& api, int device, WorkStream* stream) {
  if (device < kMaxDevices && t_given[device].stream != nullptr) {
    return *stream = given_stream(device), Status{};
  }
  bool guarded = false;
  TRT_ET_TRY(guarded_stream(api, device, stream, &guarded));
  if (guarded) return {};
  // Its owner comes before the stream, which would be lost where memory ends.
  OwnedStream& own = this_threads_streams().try_emplace(device, api, device).first->second;
  if (own.stream == nullptr) {
    TRT_ET_TRY(api.create_stream(cuda::StreamKind::blocking, &own.stream));
  }
  return *stream = own.work(), Status{};
}

Status check_not_captured(cuda::Api& api, const WorkStream& stream, const char* what) {
  bool captured = false;
  if (stream.may_be_captured) TRT_ET_TRY(api.is_captured(stream.handle, &captured));
  if (!captured) return {};
  return fail(Error::NotSupported,
              "the stream is captured, and %s waits for it: plan inputs and outputs on the GPU, or "
              "do this outside of the capture",
              what);
}

Status enter_stream(cuda::Api& api, int device, cuda::DeviceGuard& guard, WorkStream* stream) {
  TRT_ET_TRY(check_device(api, device));
  TRT_ET_TRY(guard.enter(device));
  return thread_stream(api, device, stream);
}

Status wait_for_stream(cuda::Api& api, const WorkStream& stream) {
  TRT_ET_TRY(check_not_captured(api, stream, "trt_et_wait"));
  return api.synchronize_stream(stream.handle);
}

Status wait_for_thread(cuda::Api& api) {
  const auto wait = [&api](int device, const WorkStream& stream) -> Status {
    cuda::DeviceGuard guard(api);
    TRT_ET_TRY(guard.enter(device));
    return wait_for_stream(api, stream);
  };
  for (const auto& [device, own] : this_threads_streams()) {
    if (own.stream != nullptr) TRT_ET_TRY(wait(device, own.work()));
  }
  for (int device = 0; device < kMaxDevices; ++device) {
    if (t_given[device].stream != nullptr) TRT_ET_TRY(wait(device, given_stream(device)));
  }
  return {};
}

Status caller_gets_stream(cuda::Api& api, int device, cuda::Stream* stream) {
  cuda::DeviceGuard guard(api);
  WorkStream found;
  TRT_ET_TRY(enter_stream(api, device, guard, &found));
  if (found.source == WorkStream::Source::own) {
    this_threads_streams().at(device).is_known = true;
  }
  *stream = found.handle;
  return {};
}

Status order_streams(cuda::Api& api, int earlier_device, cuda::Stream earlier, int later_device,
                     cuda::Stream later) {
  cuda::DeviceGuard guard(api);
  cuda::Event event = nullptr;
  TRT_ET_TRY(guard.enter(earlier_device));
  TRT_ET_TRY(api.create_event(&event));
  Status status = api.record_event(event, earlier);
  if (status.ok()) status = guard.enter(later_device);
  if (status.ok()) status = api.wait_event(later, event);
  // CUDA releases an event that is still being waited for once that wait is over.
  (void)api.destroy_event(event);
  return status;
}

}  // namespace trt_et
