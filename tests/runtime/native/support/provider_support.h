// What the tests that drive delegates over the fake TensorRT have in common.
#pragma once

#include <string>
#include <vector>

#include "check.h"
#include "delegate/delegate.h"
#include "owned_tensor.h"
#include "trt_et/runtime.h"
#include "trt_et/simulation.h"

namespace trt_et {

using Bytes = std::vector<uint8_t>;

// A blob around a plan (tests/runtime/tensorrt_fake/plan.h). With `ours`, a checksum and a sha256
// that names it; else as Torch-TensorRT writes it. With `rtx`, of TensorRT-RTX. With `network`, of
// an ONNX network with this metadata.
Bytes make_blob(const std::string& bindings, const std::string& plan, const std::string& more = "",
                bool ours = true, bool rtx = false, const std::string& network = "");

// A plan that doubles float32 [2, 8] from `x` into `y`, and a blob of ours around it.
extern const std::string kDoublingPlan;
Bytes doubling_blob();

// A float32 binding of a blob of ours, and one of Torch-TensorRT's.
std::string binding(const char* name, const std::string& shape, bool is_input,
                    const std::string& more = "");
std::string foreign(const char* name, bool is_input);

Status try_load(const Bytes& blob, std::unique_ptr<Delegate>* delegate,
                const LoadOptions& options = {},
                const executorch::runtime::NamedDataMap* named_data = nullptr);
std::unique_ptr<Delegate> load(const Bytes& blob, const LoadOptions& options = {});
Status call(Delegate& delegate, std::vector<executorch::runtime::EValue*> values);

// What the simulated GPUs have done so far; see trt_et_counter().
struct Counts {
  uint64_t mallocs, frees, copies_h2d, copies_d2h, copies_d2d, copies_peer, bytes_h2d, bytes_d2h,
      synchronizations, launches, calls, live_bytes[2];
};
uint64_t counter(const char* name);
Counts stats();

// Planned memory of a GPU with values, freed at the end.
struct Device {
  Device(size_t count, int index, float value);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  void write();
  float read(size_t at);

  int device;
  std::vector<float> values;
  uint8_t* base = nullptr;
  uint8_t* data = nullptr;
};

}  // namespace trt_et
