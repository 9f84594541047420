#include "etdump.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "outputs.h"

namespace trt_et::runner {

Etdump::Etdump(const std::string& path) : path_(path) {
  if (!path_.empty()) generator_.emplace();
}

executorch::runtime::EventTracer* Etdump::tracer() { return generator_ ? &*generator_ : nullptr; }

bool Etdump::write() {
  if (!generator_) return true;
  const auto trace = generator_->get_etdump_data();
  const std::unique_ptr<void, decltype(&std::free)> owned(trace.buf, &std::free);
  if (trace.buf == nullptr || trace.size == 0) {
    std::fprintf(stderr, "executor_runner: there is no event trace to write\n");
    return false;
  }
  return write_file("etdump", path_, trace.buf, trace.size);
}

}  // namespace trt_et::runner
