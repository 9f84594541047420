// ExecuTorch's event trace of a run, as a file for executorch.devtools.Inspector.
#pragma once

#include <executorch/devtools/etdump/etdump_flatcc.h>

#include <optional>
#include <string>

namespace trt_et::runner {

class Etdump {
 public:
  // An empty path: no trace is taken.
  explicit Etdump(const std::string& path);

  // Null where no trace is taken.
  executorch::runtime::EventTracer* tracer();

  // True when there is nothing to write; false after a message on stderr.
  bool write();

 private:
  const std::string path_;
  std::optional<executorch::etdump::ETDumpGen> generator_;
};

}  // namespace trt_et::runner
