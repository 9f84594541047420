// Runs on the host's processor, on the memory of simulated GPUs. Arithmetic is on float32.
#pragma once

#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "run.h"

namespace fake {

// An engine's part that runs share: nothing here.
struct Prepared {
  bool prepare(const Plan&) { return true; }
};

struct HostRun : Run {
  explicit HostRun(Run run) : Run(std::move(run)) {}

  int check(size_t i) const {
    return counts[i] == 0
               ? 0
               : g_services->check(addresses[i], counts[i] * element_size(plan->tensors[i].dtype),
                                   device);
  }

  int operator()() {
    if (scratch != nullptr) {
      const auto size = static_cast<size_t>(plan->scratch);
      if (const int code = g_services->check(scratch, size, device)) return code;
      std::memset(scratch, 0xEE, size);
    }
    if (!allocate_late()) return 1;
    for (size_t i = 0; i < addresses.size(); ++i) {
      if (const int code = check(i)) return code;
    }
    if (!aliases_share_memory()) return 1;
    for (const PlanLayer& layer : plan->layers) {
      layer.kind == "write" ? write(layer) : layer.kind == "linear" ? linear(layer) : apply(layer);
    }
    return 0;
  }

  void write(const PlanLayer& layer) {
    const Dims &cache = shapes[layer.output], &rows = shapes[layer.first];
    const int64_t at = *static_cast<const int64_t*>(addresses[layer.second]);
    const int64_t length = cache.d[2], count = rows.d[2], width = cache.d[3];
    if (at < 0 || at + count > length) return;
    auto* to = static_cast<float*>(addresses[layer.output]);
    const auto* from = static_cast<const float*>(addresses[layer.first]);
    for (int64_t head = 0; head < cache.d[0] * cache.d[1]; ++head) {
      std::memcpy(to + (head * length + at) * width, from + head * count * width,
                  static_cast<size_t>(count * width) * sizeof(float));
    }
  }

  void linear(const PlanLayer& layer) {
    const auto* first = static_cast<const float*>(addresses[layer.first]);
    const std::vector<float> from(first, first + counts[layer.first]);
    auto* to = static_cast<float*>(addresses[layer.output]);
    const size_t width = layer.columns_in, rows = from.size() / width;
    if (rows * layer.columns_out != counts[layer.output]) return;
    const float* bias = layer.numbers.data() + width * layer.columns_out;
    for (size_t row = 0; row < rows; ++row) {
      for (size_t column = 0; column < layer.columns_out; ++column) {
        const float* weights = layer.numbers.data() + column * width;
        to[row * layer.columns_out + column] =
            std::inner_product(weights, weights + width, from.data() + row * width, bias[column]);
      }
    }
  }

  void apply(const PlanLayer& layer) {
    auto* to = static_cast<float*>(addresses[layer.output]);
    const auto* first = static_cast<const float*>(addresses[layer.first]);
    const auto* second = static_cast<const float*>(addresses[layer.second]);
    for (size_t i = 0; i < counts[layer.output]; ++i) {
      const float x = first[counts[layer.first] == 1 ? 0 : i];
      if (layer.kind == "scale") to[i] = x * layer.value;
      if (layer.kind == "shift") to[i] = x + layer.value;
      if (layer.kind == "sum") to[i] = x + second[counts[layer.second] == 1 ? 0 : i];
      if (layer.kind == "relu") to[i] = x > 0 ? x : 0;
    }
  }
};

inline bool queue(Run run, const Prepared&, cudaStream_t stream) {
  return g_services->launch(
             stream, [](void* argument) { return (*static_cast<HostRun*>(argument))(); },
             [](void* argument) { delete static_cast<HostRun*>(argument); },
             new HostRun(std::move(run))) == 0;
}

}  // namespace fake
