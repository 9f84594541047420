// What the parser reads from a blob, for the comparison with Python's.
#pragma once

#include <string>

#include "blob/blob.h"

// All facts as JSON with sorted keys.
std::string describe_blob(const trt_et::Blob& blob);
