// The outputs of a method: memory for them, printing, and files.
#pragma once

#include <executorch/runtime/executor/method.h>

#include <memory>
#include <string>
#include <vector>

#include "flags.h"
#include "memory.h"

namespace trt_et::runner {

// False after a message on stderr, which calls it "<what> file".
bool write_file(const char* what, const std::string& path, const void* bytes, size_t size);

class Outputs {
 public:
  // Gives memory to outputs that the program did not plan.
  bool prepare(executorch::runtime::Method& method);

  // Prints to stdout as asked, and writes <base>-<i>.bin where a base is given.
  bool deliver(executorch::runtime::Method& method, const MethodMemory& memory, PrintOutput mode,
               const std::string& base);

 private:
  std::vector<std::unique_ptr<uint8_t[]>> buffers_;
};

}  // namespace trt_et::runner
