// Where this library and ExecuTorch's were loaded from.
#pragma once

#include <string>

namespace trt_et {

// The folder so many levels above the library that holds a symbol; "" if it is not known.
std::string folder_of(const void* symbol, int levels);

// The folder of the Python packages that ExecuTorch is one of. Its library is
// <site-packages>/executorch/lib/libexecutorch.so.
std::string executorch_packages();

}  // namespace trt_et
