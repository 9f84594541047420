// The flags that are options of the backend.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trt_et::runner {

// Sets options of the backend for this process. False after a message on stderr.
bool set_backend_options(const std::vector<std::pair<std::string, std::string>>& options);

}  // namespace trt_et::runner
