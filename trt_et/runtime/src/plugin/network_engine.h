// Builds the engine of a network, as a load of its program would, for whoever stores it.
#pragma once

#include <executorch/runtime/core/named_data_map.h>

#include <functional>

#include "blob/engine_blob.h"

namespace trt_et {

using TakeBuiltEngine =
    std::function<Status(const BuiltFacts& facts, const void* engine, size_t size)>;

// `blob` are a delegate's bytes; the engine's are valid during the call of `take`.
Status build_network_engine(const void* blob, size_t size,
                            const executorch::runtime::NamedDataMap& named_data,
                            const TakeBuiltEngine& take);

}  // namespace trt_et
