// What is not about streams: devices, memory, copies, counters and failures.
#include "simulated_api.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace trt_et::cuda {
namespace {

constexpr size_t kPeer = 3;

// Counters by their name; kCounts of them.
constexpr const char* kNames[] = {
    "mallocs",        "frees",      "launches",  "synchronizations", "calls",      "captures",
    "graph_launches", "fake_calls", "failures",  "copies_h2d",       "copies_d2h", "copies_d2d",
    "copies_peer",    "bytes_h2d",  "bytes_d2h", "bytes_d2d",        "bytes_peer"};
static_assert(std::size(kNames) == kCounts);

}  // namespace

SimulatedApi::SimulatedApi(int devices) : devices_(devices), streams_(devices) {
  const char* value = std::getenv("TRT_ET_SIM_FAIL_AFTER");
  if (value != nullptr) fail_after(std::strtoull(value, nullptr, 10));
}

Status SimulatedApi::device_count(int* count) {
  const Inside inside;
  TRT_ET_TRY(enter("device_count"));
  *count = devices_;
  return {};
}

Status SimulatedApi::device_info(int device, DeviceInfo* info) {
  const Inside inside;
  TRT_ET_TRY(enter("device_info"));
  TRT_ET_TRY(check_device(device));
  *info = DeviceInfo{"simulated GPU", 0, 0, integrated_, pageable_access_};
  return {};
}

Status SimulatedApi::current_device(int* device) {
  const Inside inside;
  TRT_ET_TRY(enter("current_device"));
  *device = t_device;
  return {};
}

Status SimulatedApi::set_device(int device) {
  const Inside inside;
  TRT_ET_TRY(enter("set_device"));
  TRT_ET_TRY(check_device(device));
  t_device = device;
  return {};
}

Status SimulatedApi::enter_device(int device, Entered* entered) {
  const Inside inside;
  TRT_ET_TRY(enter("enter_device"));
  TRT_ET_TRY(check_device(device));
  *entered = {t_device != device, t_device};
  t_device = device;
  return {};
}

Status SimulatedApi::leave_device(const Entered& entered) {
  const Inside inside;
  // Made to fail, it goes back all the same.
  Status failure = enter("leave_device");
  t_device = entered.previous;
  return failure;
}

Status SimulatedApi::free_memory(size_t* bytes) {
  const Inside inside;
  TRT_ET_TRY(enter("free_memory"));
  *bytes = free_bytes_;
  return {};
}

Status SimulatedApi::allocate(size_t size, void** pointer) {
  const Inside inside;
  TRT_ET_TRY(enter("allocate"));
  TRT_ET_TRY(streams_.check_unsafe("allocation"));
  TRT_ET_TRY(memory_.allocate(t_device, size, pointer));
  counters_.add(kMallocs);
  return {};
}

Status SimulatedApi::release(void* pointer) {
  const Inside inside;
  // Made to fail, it frees all the same, as CUDA's calls that release do.
  Status failure = enter("release");
  if (pointer == nullptr) return failure;
  TRT_ET_TRY(streams_.check_unsafe("freeing memory"));
  PointerInfo info;
  if (memory_.find(pointer, &info).ok() && info.device >= 0) streams_.run_all(info.device);
  int device = 0;
  TRT_ET_TRY(memory_.release(pointer, &device));
  counters_.add(kFrees);
  return failure;
}

Status SimulatedApi::allocate_managed(size_t size, void** pointer) {
  const Inside inside;
  TRT_ET_TRY(enter("allocate_managed"));
  TRT_ET_TRY(streams_.check_unsafe("allocation"));
  TRT_ET_TRY(memory_.allocate(t_device, size, pointer, true));
  counters_.add(kMallocs);
  return {};
}

Status SimulatedApi::allocate_pinned(size_t size, void** pointer) {
  const Inside inside;
  TRT_ET_TRY(enter("allocate_pinned"));
  TRT_ET_TRY(streams_.check_unsafe("allocation"));
  return memory_.allocate(SimMemory::kPinned, size, pointer);
}

Status SimulatedApi::release_pinned(void* pointer) {
  const Inside inside;
  Status failure = enter("release_pinned");
  TRT_ET_TRY(streams_.check_unsafe("freeing memory"));
  for (int device = 0; device < devices_; ++device) streams_.run_all(device);
  int device = 0;
  TRT_ET_TRY(memory_.release(pointer, &device));
  return failure;
}

Status SimulatedApi::pointer_info(const void* pointer, PointerInfo* info) {
  const Inside inside;
  TRT_ET_TRY(enter("pointer_info"));
  return memory_.find(pointer, info);
}

Status SimulatedApi::copy(void* to, const void* from, size_t size, CopyKind kind, Stream stream) {
  const Inside inside;
  TRT_ET_TRY(enter("copy"));
  SimStreamPtr queue;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  const int device = queue->device();
  const bool from_host = kind == CopyKind::host_to_device;
  const bool to_host = kind == CopyKind::device_to_host;
  bool pageable = false;
  TRT_ET_TRY(from_host ? check_host(from, &pageable) : memory_.check(from, size, device, "source"));
  TRT_ET_TRY(to_host ? check_host(to, &pageable) : memory_.check(to, size, device, "destination"));
  if (pageable && queue->breaks_capture()) {
    return {Error::InvalidState, "copy of pageable memory while its stream is captured"};
  }
  count_copy(static_cast<size_t>(kind), size);
  // Pageable memory is read as late as CUDA may, too.
  return streams_.enqueue(*queue, [this, to, from, size, device, from_host, to_host, pageable] {
    if (!from_host) TRT_ET_TRY(memory_.check(from, size, device, "source"));
    if (!to_host) TRT_ET_TRY(memory_.check(to, size, device, "destination"));
    if ((from_host || to_host) && !pageable) {
      TRT_ET_TRY(memory_.check(from_host ? from : to, size, SimMemory::kPinned, "pinned memory"));
    }
    std::memmove(to, from, size);
    return Status{};
  });
}

Status SimulatedApi::zero(void* to, size_t size, Stream stream) {
  const Inside inside;
  TRT_ET_TRY(enter("zero"));
  SimStreamPtr queue;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  const int device = queue->device();
  TRT_ET_TRY(memory_.check(to, size, device, "destination"));
  return streams_.enqueue(*queue, [this, to, size, device] {
    TRT_ET_TRY(memory_.check(to, size, device, "destination"));
    std::memset(to, 0, size);
    return Status{};
  });
}

Status SimulatedApi::copy_peer(void* to, int to_device, const void* from, int from_device,
                               size_t size, Stream stream) {
  const Inside inside;
  TRT_ET_TRY(enter("copy_peer"));
  SimStreamPtr queue;
  TRT_ET_TRY(streams_.find(stream, t_device, &queue));
  TRT_ET_TRY(memory_.check(from, size, from_device, "source"));
  TRT_ET_TRY(memory_.check(to, size, to_device, "destination"));
  count_copy(kPeer, size);
  return streams_.enqueue(*queue, [this, to, to_device, from, from_device, size] {
    TRT_ET_TRY(memory_.check(from, size, from_device, "source"));
    TRT_ET_TRY(memory_.check(to, size, to_device, "destination"));
    std::memmove(to, from, size);
    return Status{};
  });
}

Status SimulatedApi::call_of_fake(const char* what) {
  counters_.add(kFakeCalls);
  return count_down(what, "TensorRT");
}

Status SimulatedApi::check_memory(const void* pointer, size_t size, int device, const char* what) {
  const Inside inside;
  return memory_.check_kernel(pointer, size, device, what);
}

Status SimulatedApi::enter(const char* what) {
  counters_.add(kCalls);
  return count_down(what, "CUDA");
}

Status SimulatedApi::count_down(const char* what, const char* whose) {
  uint64_t left = fail_countdown_.load();
  while (left != 0 &&
         !fail_countdown_.compare_exchange_weak(left, left == 1 ? fail_again_.load() : left - 1)) {
  }
  if (left != 1) return {};
  counters_.add(kFailures);
  return fail(Error::Internal, "simulated failure of %s call %s", whose, what);
}

Status SimulatedApi::check_device(int device) const {
  if (device >= 0 && device < devices_) return {};
  return fail(Error::InvalidArgument, "cuda:%d does not exist; %d GPU(s) are simulated", device,
              devices_);
}

Status SimulatedApi::check_host(const void* pointer, bool* pageable) {
  PointerInfo info;
  TRT_ET_TRY(memory_.find(pointer, &info));
  *pageable = info.kind == MemoryKind::host;
  if (pointer != nullptr && info.kind != MemoryKind::device) return {};
  return fail(Error::InvalidArgument, "%p is no host memory", pointer);
}

void SimulatedApi::count_copy(size_t kind, size_t size) {
  counters_.add(kCopies + kind);
  counters_.add(kBytes + kind, size);
}

bool SimulatedApi::counter(std::string_view name, uint64_t* value) {
  for (size_t i = 0; i < kCounts; ++i) {
    if (name == kNames[i]) return *value = counters_.sum(i), true;
  }
  if (name == "live_graphs") return *value = handles_.live_graphs(), true;
  if (name == "live_events") return *value = handles_.live_events(), true;
  if (name == "live_streams") return *value = streams_.live(), true;
  return live_bytes(name, value);
}

// "live_bytes" of all devices, or "live_bytes:1" of one.
bool SimulatedApi::live_bytes(std::string_view name, uint64_t* value) {
  constexpr std::string_view kLiveBytes = "live_bytes";
  if (name.substr(0, kLiveBytes.size()) != kLiveBytes) return false;
  const std::string_view which = name.substr(kLiveBytes.size());
  if (which.empty()) {
    *value = 0;
    for (int device = 0; device < devices_; ++device) *value += memory_.live_bytes(device);
    return true;
  }
  int device = -1;
  const auto [end, error] = std::from_chars(which.data() + 1, which.data() + which.size(), device);
  const bool complete = error == std::errc() && end == which.data() + which.size();
  if (which[0] != ':' || !complete || !check_device(device).ok()) return false;
  *value = memory_.live_bytes(device);
  return true;
}

}  // namespace trt_et::cuda
