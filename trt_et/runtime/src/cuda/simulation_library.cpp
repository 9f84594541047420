#include "simulation_library.h"

#include <dlfcn.h>

#include <atomic>
#include <string_view>

#include "common/environment.h"
#include "common/installed.h"

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

}  // namespace

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

const Simulation* simulation() { return g_simulation; }

}  // namespace trt_et::cuda
