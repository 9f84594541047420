// Where this library and ExecuTorch's were loaded from.
#pragma once

#include <string>

namespace trt_et {

// Call this when the library is loaded: its path may be relative to the folder that is current now.
void note_folders();

// The path of a file of trt-et in the folder of this library, or, where that is a link to another
// folder and the file is not here, in that one.
std::string beside_plugin(const std::string& name);

// The folder of the Python packages that this library, or ExecuTorch, is one of: 4 and 3 levels
// above the library; "" if it is not known.
std::string own_packages();
std::string executorch_packages();

}  // namespace trt_et
