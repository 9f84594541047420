// Apart from memory.cpp: it asks the plugin, which some programs that use that file open by its
// path.
#include <trt_et/runtime.h>

#include <cstdio>
#include <map>
#include <string>

#include "memory.h"

namespace trt_et::runner {

void MethodMemory::print() const {
  std::map<int, size_t> bytes;  // by GPU; -1: the host
  for (size_t i = 0; i < spans_.size(); ++i) {
    const int planned = trt_et_planned_device(spans_[i].data());
    const int device = planned >= 0 ? planned : devices_[i].index();
    bytes[devices_[i].is_cpu() ? -1 : device] += spans_[i].size();
  }
  for (const auto& [device, size] : bytes) {
    const std::string name = device < 0 ? "the host" : "cuda:" + std::to_string(device);
    std::printf("Planned memory on %s: %zu bytes\n", name.c_str(), size);
  }
}

}  // namespace trt_et::runner
