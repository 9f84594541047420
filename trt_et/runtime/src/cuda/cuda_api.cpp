#include "cuda_api.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "common/immortal.h"
#include "common/log.h"
#include "common/process.h"
#include "simulation_library.h"

// Null unless the program contains the simulation.
extern "C" __attribute__((weak)) const trt_et::cuda::Simulation* trt_et_open_simulation(
    int, const char* (*)(const char*));

namespace trt_et::cuda {
namespace {

constexpr const char* kLibrary = "libtrt_et_simulation.so";

std::atomic<const Simulation*> g_simulation{nullptr};

Status find_function(OpenSimulation* open) {
  *open = trt_et_open_simulation;
  if (*open != nullptr) return {};
  const std::string path = beside_plugin(kLibrary);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(Error::NotFound, "simulated GPUs need %s next to the plugin: %s", kLibrary,
                dlerror());
  }
  *open = reinterpret_cast<OpenSimulation>(dlsym(library, TRT_ET_OPEN_SIMULATION));
  if (*open != nullptr) return {};
  return fail(Error::NotSupported, "%.150s is not the library of simulated GPUs", path.c_str());
}

constexpr int kMaxSimulated = 16;

enum class Kind { real, simulated, automatic };

struct Mode {
  Kind kind = Kind::real;
  int devices = 0;

  std::string text() const {
    if (kind == Kind::real) return "real";
    return (kind == Kind::simulated ? "simulated:" : "auto:") + std::to_string(devices);
  }
};

struct Choice {
  std::mutex mutex;
  bool requested = false;
  bool made = false;
  // Nobody asked for a mode: a reference engine gets simulated GPUs if there is no real one.
  bool by_default = false;
  bool lacks_simulation = false;  // its library does not open
  Mode mode;
  Api* api = nullptr;
  Status status;
};

// The implementation, once it is chosen and works: every run asks for it.
std::atomic<Api*> g_ready{nullptr};
std::atomic<int> g_device_count{0};  // of the mode, once it has been asked for: none comes or goes
std::atomic<bool> g_ending{false};
std::atomic<bool> g_uses_gpus{false};  // real ones, or begins to
std::atomic<bool> g_forked{false};     // from a process that does

Status parse_mode(const std::string& text, Mode* mode) {
  if (text.empty() || text == "real") return *mode = Mode{}, Status{};
  for (const Kind kind : {Kind::simulated, Kind::automatic}) {
    for (int devices = 1; devices <= kMaxSimulated; ++devices) {
      const Mode named{kind, devices};
      if (text == named.text() || text + ":1" == named.text()) return *mode = named, Status{};
    }
  }
  return fail(Error::InvalidArgument,
              "TRT_ET_CUDA is '%.40s'; expected real, simulated:N, or auto:N with N in 1..16",
              text.c_str());
}

Status count_devices(Api& api, int* count) {
  TRT_ET_TRY(api.device_count(count));
  if (*count > 0) return {};
  return fail(Error::NotFound, "no CUDA device: the driver reports 0 GPUs");
}

Status open_real(Api** api) {
  Api* made = nullptr;
  int count = 0;
  TRT_ET_TRY(make_real_api(&made));
  TRT_ET_TRY(count_devices(*made, &count));
  note_opened_library();
  *api = made;
  return {};
}

// The GPUs of this machine; fails when there are none. CUDA does not work in a child of a process
// that has used it, nor does what the child inherited: the lock of the choice may be held there.
Status make_real(Api** api) {
  static const int handler = pthread_atfork(nullptr, nullptr, [] {
    if (!g_uses_gpus) return;
    g_forked = true;
    g_ready = nullptr;
  });
  (void)handler;
  g_uses_gpus = true;
  Status status = open_real(api);
  g_uses_gpus = status.ok();
  return status;
}

void log_simulated(const Status& no_gpu) {
  log(LogLevel::info, "TensorRTBackend: simulated GPUs are used: %s", no_gpu.text.c_str());
}

Status open_simulation(int devices, Api** api) {
  OpenSimulation open = nullptr;
  TRT_ET_TRY(find_function(&open));
  const Simulation* found = open(devices, environment_variable);
  if (std::string_view(found->version) != TRT_ET_VERSION) {
    return fail(Error::NotSupported, "%s is of trt-et %.40s, the plugin of %s: install both again",
                kLibrary, found->version, TRT_ET_VERSION);
  }
  g_simulation = found;
  *api = found->api;
  return {};
}

void make_choice(Choice& chosen) {
  chosen.made = true;
  if (!chosen.requested) {
    const char* value = environment_variable("TRT_ET_CUDA");
    const std::string text = value == nullptr ? "" : value;
    chosen.by_default = text.empty();
    chosen.status = parse_mode(text, &chosen.mode);
    if (!chosen.status.ok()) return;
  }
  Mode& mode = chosen.mode;
  if (mode.kind != Kind::simulated) chosen.status = make_real(&chosen.api);
  if (mode.kind == Kind::automatic) {
    if (!chosen.status.ok()) log_simulated(chosen.status);
    mode.kind = chosen.status.ok() ? Kind::real : Kind::simulated;
  }
  if (mode.kind == Kind::simulated) {
    chosen.status = open_simulation(mode.devices, &chosen.api);
    log(LogLevel::debug, "TensorRTBackend: CUDA is simulated, %d GPU(s) on host memory",
        mode.devices);
  }
}

}  // namespace

const Simulation* simulation() { return g_simulation; }

Status choose(const char* mode) {
  TRT_ET_TRY(check_not_forked());
  Mode wanted;
  TRT_ET_TRY(parse_mode(mode == nullptr ? "" : mode, &wanted));
  auto& chosen = immortal<Choice>();
  const std::lock_guard<std::mutex> lock(chosen.mutex);
  // A choice that gave no GPU holds nothing that another one could break.
  if (chosen.made && !chosen.status.ok()) chosen.made = chosen.requested = false;
  // Those of no setting are as many as there can be.
  const bool simulated = chosen.by_default && chosen.mode.kind == Kind::simulated;
  const bool found = chosen.made && (wanted.kind == Kind::automatic ||
                                     (simulated && wanted.kind == Kind::simulated));
  if ((chosen.made || chosen.requested) && !found && chosen.mode.text() != wanted.text()) {
    return fail(Error::InvalidState, "CUDA is already '%s' in this process; it cannot become '%s'",
                chosen.mode.text().c_str(), wanted.text().c_str());
  }
  if (found) return {};
  chosen.requested = true;
  chosen.by_default = false;
  chosen.mode = wanted;
  g_device_count = 0;
  chosen.status = {};
  if (wanted.kind == Kind::automatic) make_choice(chosen);
  return chosen.status;
}

Status access(Api** api) {
  *api = g_ready.load(std::memory_order_acquire);
  if (*api != nullptr) return {};
  TRT_ET_TRY(check_not_forked());
  auto& chosen = immortal<Choice>();
  const std::lock_guard<std::mutex> lock(chosen.mutex);
  if (!chosen.made) make_choice(chosen);
  *api = chosen.api;
  if (chosen.status.ok()) g_ready.store(chosen.api, std::memory_order_release);
  return chosen.status;
}

Status access_or_simulate(Api** api) {
  Status status = access(api);
  if (status.error != Error::NotFound) return status;
  auto& chosen = immortal<Choice>();
  const std::lock_guard<std::mutex> lock(chosen.mutex);
  if (!chosen.by_default) return status;
  const Status simulated = open_simulation(kMaxSimulated, api);
  chosen.lacks_simulation = !simulated.ok();
  if (simulated.ok()) return {};
  return {status.error, status.text + "; " + simulated.text};
}

Status access_for_reference(Api** api) {
  TRT_ET_TRY(access_or_simulate(api));
  auto& chosen = immortal<Choice>();
  const std::lock_guard<std::mutex> lock(chosen.mutex);
  if (chosen.status.ok()) return {};
  log_simulated(chosen.status);
  chosen.mode = {Kind::simulated, kMaxSimulated};
  chosen.api = *api;
  chosen.status = {};
  return {};
}

bool is_forked() { return g_forked.load(std::memory_order_relaxed); }

Status check_not_forked() {
  if (!is_forked()) return {};
  return fail(Error::InvalidState,
              "CUDA was in use when this process was forked: start it anew (spawn) instead");
}

// Whatever the child's parent was doing: it used real GPUs.
std::string chosen_mode() {
  if (is_forked()) return Mode{}.text();
  auto& chosen = immortal<Choice>();
  const std::lock_guard<std::mutex> lock(chosen.mutex);
  return chosen.made || chosen.requested ? chosen.mode.text() : std::string();
}

std::string problem() {
  if (is_forked()) return check_not_forked().text;
  auto& chosen = immortal<Choice>();
  const std::lock_guard<std::mutex> lock(chosen.mutex);
  return chosen.status.text;
}

std::string remedy() {
  auto& chosen = immortal<Choice>();
  const std::lock_guard<std::mutex> lock(chosen.mutex);
  if (chosen.mode.kind != Kind::real || chosen.lacks_simulation) return "";
  return "; TRT_ET_CUDA=simulated:N runs engines of builder='reference'";
}

Status usable_devices(Api** api, int* count, Access access) {
  TRT_ET_TRY(access(api));
  *count = g_device_count.load(std::memory_order_relaxed);
  if (*count > 0) return {};
  TRT_ET_TRY(count_devices(**api, count));
  g_device_count.store(*count, std::memory_order_relaxed);
  return {};
}

Status unless_lost(Api& api, Status failure) {
  size_t bytes = 0;
  Status asked = api.free_memory(&bytes);
  return asked.error == Error::AccessFailed ? std::move(asked) : std::move(failure);
}

Status DeviceGuard::enter(int device) {
  if (device == device_) return {};
  leave();
  TRT_ET_TRY(api_.enter_device(device, &entered_));
  device_ = device;
  return {};
}

void DeviceGuard::leave() {
  if (device_ >= 0 && entered_.changed) (void)report(api_.leave_device(entered_));
  device_ = -1;
}

void note_opened_library() {
  (void)std::atexit([] { g_ending = true; });
}

bool is_ending() { return g_ending.load(std::memory_order_relaxed) || is_forked(); }

}  // namespace trt_et::cuda
