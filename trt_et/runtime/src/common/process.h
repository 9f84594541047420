// What is known of this process: its environment, and where this library and ExecuTorch's were
// loaded from.
#pragma once

#include <map>
#include <string>

namespace trt_et {

// Call this when the library is loaded. Later, another thread of the program may change the
// environment at any moment, and no reader is safe from that; and the path of a library may be
// relative to the folder that is current now.
void note_process();

// The environment as it was then.
const std::map<std::string, std::string>& environment();
// The value of a variable; null if it was not set.
const char* environment_variable(const char* name);
// For tests, while nothing else runs; a null value removes the variable.
void set_environment_variable(const char* name, const char* value);

// The path of a file of trt-et in the folder of this library, or, where that is a link to another
// folder and the file is not here, in that one.
std::string beside_plugin(const std::string& name);

// The folder of the Python packages that this library, or ExecuTorch, is one of: 4 and 3 levels
// above the library; "" if it is not known.
std::string own_packages();
std::string executorch_packages();

}  // namespace trt_et
