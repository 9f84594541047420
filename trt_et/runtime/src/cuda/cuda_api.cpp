#include "cuda_api.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "common/log.h"

namespace trt_et::cuda {
namespace {

constexpr int kMaxSimulated = 16;

struct Mode {
  bool simulated = false;
  int devices = 0;

  std::string text() const {
    return simulated ? "simulated:" + std::to_string(devices) : std::string("real");
  }
};

// Never destroyed: delegates and allocators outlive static destructors of this library.
struct Choice {
  std::mutex mutex;
  bool requested = false;
  bool made = false;
  Mode mode;
  Api* api = nullptr;
  Status status;
};

// The implementation, once it is chosen and works: every run asks for it.
std::atomic<Api*> g_ready{nullptr};

Choice& choice() {
  static auto* instance = new Choice;
  return *instance;
}

Status parse_mode(const char* text, Mode* mode) {
  constexpr const char* kSimulated = "simulated";
  const size_t length = std::strlen(kSimulated);
  if (std::strcmp(text, "") == 0 || std::strcmp(text, "real") == 0) {
    *mode = Mode{};
    return {};
  }
  if (std::strncmp(text, kSimulated, length) == 0) {
    const char* rest = text + length;
    int devices = 0;
    if (*rest == '\0') {
      devices = 1;
    } else if (rest[0] == ':' && rest[1] >= '0' && rest[1] <= '9' && std::strlen(rest) <= 3) {
      char* end = nullptr;
      const long value = std::strtol(rest + 1, &end, 10);
      devices = *end == '\0' ? static_cast<int>(value) : 0;
    }
    if (devices >= 1 && devices <= kMaxSimulated) {
      *mode = Mode{true, devices};
      return {};
    }
  }
  return fail(Error::InvalidArgument,
              "TRT_ET_CUDA is '%.40s'; expected real, simulated, or simulated:N with N in 1..16",
              text);
}

void make_choice(Choice& chosen) {
  chosen.made = true;
  if (!chosen.requested) {
    const char* value = std::getenv("TRT_ET_CUDA");
    chosen.status = parse_mode(value == nullptr ? "" : value, &chosen.mode);
    if (!chosen.status.ok()) return;
  }
  if (chosen.mode.simulated) {
    chosen.api = make_simulated_api(chosen.mode.devices);
    log(LogLevel::debug, "TensorRTBackend: CUDA is simulated, %d GPU(s) on host memory",
        chosen.mode.devices);
  } else {
    chosen.status = make_real_api(&chosen.api);
  }
}

}  // namespace

Status choose(const char* mode) {
  Mode wanted;
  TRT_ET_TRY(parse_mode(mode == nullptr ? "" : mode, &wanted));
  Choice& chosen = choice();
  const std::lock_guard<std::mutex> lock(chosen.mutex);
  if ((chosen.made || chosen.requested) && chosen.mode.text() != wanted.text()) {
    return fail(Error::InvalidState, "CUDA is already '%s' in this process; it cannot become '%s'",
                chosen.mode.text().c_str(), wanted.text().c_str());
  }
  chosen.requested = true;
  chosen.mode = wanted;
  return {};
}

Status access(Api** api) {
  *api = g_ready.load(std::memory_order_acquire);
  if (*api != nullptr) return {};
  Choice& chosen = choice();
  const std::lock_guard<std::mutex> lock(chosen.mutex);
  if (!chosen.made) make_choice(chosen);
  *api = chosen.api;
  if (chosen.status.ok()) g_ready.store(chosen.api, std::memory_order_release);
  return chosen.status;
}

std::string chosen_mode() {
  Choice& chosen = choice();
  const std::lock_guard<std::mutex> lock(chosen.mutex);
  return chosen.made || chosen.requested ? chosen.mode.text() : std::string();
}

Status usable_devices(Api** api, int* count) {
  static std::atomic<int> known{0};  // GPUs do not come and go.
  TRT_ET_TRY(access(api));
  *count = known.load(std::memory_order_relaxed);
  if (*count > 0) return {};
  TRT_ET_TRY((*api)->device_count(count));
  if (*count < 1) return fail(Error::NotFound, "no CUDA device: the driver reports 0 GPUs");
  known.store(*count, std::memory_order_relaxed);
  return {};
}

namespace {
std::atomic<uint64_t> g_memory_epoch{0};
}

uint64_t memory_epoch() { return g_memory_epoch.load(std::memory_order_acquire); }
void next_memory_epoch() { g_memory_epoch.fetch_add(1, std::memory_order_acq_rel); }

Status DeviceGuard::enter(int device) {
  if (previous_ < 0) {
    TRT_ET_TRY(api_.current_device(&previous_));
    current_ = previous_;
  }
  if (device == current_) return {};
  TRT_ET_TRY(api_.set_device(device));
  current_ = device;
  return {};
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0 && current_ != previous_) (void)api_.set_device(previous_);
}

}  // namespace trt_et::cuda
