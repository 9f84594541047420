// Memory after many loads, and after many runs.
#include "commands.h"

namespace trt_et::hard_use {
namespace {

using Verification = executorch::runtime::Program::Verification;

void cycle(const Bytes& program) {
  LoadedProgram loaded(program.data(), program.size());
  if (!loaded.load(Verification::Minimal) || !loaded.execute()) die(last_error());
}

}  // namespace

int run_cycles(const Bytes& program, uint64_t count) {
  for (int i = 0; i < 100; ++i) cycle(program);
  const double host = host_heap();
  const uint64_t device = counter("live_bytes");
  for (uint64_t i = 0; i < count; ++i) cycle(program);
  print("host_growth", host_heap() - host);
  print("device_growth", static_cast<double>(counter("live_bytes") - device));
  print("engines", static_cast<double>(counter("engines")));
  return 0;
}

int run_executes(const Bytes& program, uint64_t count) {
  LoadedProgram loaded(program.data(), program.size());
  if (!loaded.load(Verification::Minimal)) die(last_error());
  const auto execute = [&](uint64_t times) {
    for (uint64_t i = 0; i < times; ++i) {
      if (!loaded.execute()) die(last_error());
    }
  };
  execute(1000);
  const Bytes expected = loaded.outputs();
  const double host = host_heap();
  const uint64_t device = counter("live_bytes"), mallocs = counter("mallocs");
  execute(count);
  print("host_growth", host_heap() - host);
  print("device_growth", static_cast<double>(counter("live_bytes") - device));
  print("device_mallocs", static_cast<double>(counter("mallocs") - mallocs));
  print("same_outputs", loaded.outputs() == expected ? 1 : 0);
  return 0;
}

}  // namespace trt_et::hard_use
