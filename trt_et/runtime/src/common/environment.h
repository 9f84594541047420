// The environment of the process as it was when this library was loaded.
#pragma once

#include <map>
#include <string>

namespace trt_et {

// Read by the first call, which is made when the library is loaded: later, another thread of the
// program may change the environment at any moment, and no reader is safe from that.
const std::map<std::string, std::string>& environment();

// The value of a variable; null if it was not set.
const char* environment_variable(const char* name);

// For tests, while nothing else runs; a null value removes the variable.
void set_environment_variable(const char* name, const char* value);

}  // namespace trt_et
