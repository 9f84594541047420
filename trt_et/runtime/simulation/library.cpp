// What libtrt_et_simulation.so exports, and what it offers to a fake TensorRT.
#include <dlfcn.h>

#include <cstdio>
#include <mutex>
#include <string>

#include "cuda/simulation_library.h"
#include "host_engine.h"
#include "simulated_api.h"
#include "trt_et/simulation.h"

namespace trt_et::cuda {
namespace {

std::atomic<SimulatedApi*> g_simulated{nullptr};

thread_local char t_failure[kMaxErrorText + 1] = "";

int code_of(const Status& status) {
  if (!status.ok()) std::snprintf(t_failure, sizeof t_failure, "%s", status.text.c_str());
  return static_cast<int>(status.error);
}

const trt_et_sim_services& services() {
  // Exceptions of a fake end here: the heap is all that can fail in these.
  static const trt_et_sim_services table = {
      [](const char* what) { return code_of(simulated_api()->call_of_fake(what)); },
      [](int* device) { return code_of(simulated_api()->current_device(device)); },
      [](size_t size, void** pointer) { return code_of(simulated_api()->allocate(size, pointer)); },
      [](void* pointer) { return code_of(simulated_api()->release(pointer)); },
      [](const void* pointer, size_t size, int device) {
        return code_of(simulated_api()->check_memory(pointer, size, device, "TensorRT's argument"));
      },
      [](void* stream, int (*run)(void*), void (*drop)(void*), void* argument) {
        const Inside inside;
        const std::shared_ptr<void> owned(argument, drop);
        return code_of(simulated_api()->launch(stream, [run, owned]() -> Status {
          const int code = run(owned.get());
          if (code == 0) return {};
          return fail(static_cast<Error>(code), "simulated TensorRT failed: %s", t_failure);
        }));
      },
      [](int change) { t_inside += change; }};
  return table;
}

// See Simulation. The real library is not open for longer than it takes to tell.
bool attach_fake() {
  const char* named = simulated_api()->variable("TRT_ET_TENSORRT_LIBRARY");
  if (named == nullptr || *named == '\0') return false;
  static std::mutex mutex;
  static auto* attached = new std::string;
  const std::lock_guard<std::mutex> lock(mutex);
  if (*attached == named) return true;
  void* handle = dlopen(named, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return false;
  const auto attach =
      reinterpret_cast<trt_et_fake_attach_function>(dlsym(handle, TRT_ET_FAKE_ATTACH));
  if (attach == nullptr) {
    dlclose(handle);
    return false;
  }
  attach(&services());  // The handle stays: the fake is in use from now on.
  *attached = named;
  return true;
}

bool counter(const char* name, uint64_t* value) { return simulated_api()->counter(name, value); }

}  // namespace

SimulatedApi* simulated_api() { return g_simulated; }

}  // namespace trt_et::cuda

using namespace trt_et;

extern "C" {

TRT_ET_EXPORT const cuda::Simulation* trt_et_open_simulation(int devices,
                                                             const char* (*variable)(const char*)) {
  static const cuda::Simulation simulation = {
      TRT_ET_VERSION,        cuda::g_simulated = new cuda::SimulatedApi(variable),
      &reference_provider(), &onnx_provider(),
      cuda::counter,         cuda::attach_fake};
  cuda::simulated_api()->set_devices(devices);
  return &simulation;
}

uint64_t trt_et_sim_fail_after(uint64_t n) {
  cuda::SimulatedApi* api = cuda::simulated_api();
  return api == nullptr ? 0 : api->fail_after(n);
}

void trt_et_sim_fail_again(uint64_t n) {
  cuda::SimulatedApi* api = cuda::simulated_api();
  if (api != nullptr) api->fail_again(n);
}

}  // extern "C"
