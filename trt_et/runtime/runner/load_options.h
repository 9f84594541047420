// The flags that are load options of the backend, in ExecuTorch's form.
#pragma once

#include <executorch/runtime/backend/backend_options_map.h>

#include <string>
#include <utility>
#include <vector>

namespace trt_et::runner {

class LoadOptionsMap {
 public:
  // False after a message on stderr.
  bool fill(const std::vector<std::pair<std::string, std::string>>& options);

  const executorch::runtime::LoadBackendOptionsMap& map() const { return map_; }

 private:
  std::vector<executorch::runtime::BackendOption> options_;
  executorch::runtime::LoadBackendOptionsMap map_;
};

}  // namespace trt_et::runner
