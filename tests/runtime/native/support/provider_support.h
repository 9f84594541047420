// What the tests that drive delegates over the fake TensorRT have in common.
#pragma once

#include <string>
#include <vector>

#include "check.h"
#include "delegate/delegate.h"
#include "owned_tensor.h"
#include "parse_exactly.h"
#include "trt_et/runtime.h"
#include "trt_et/simulation.h"

namespace trt_et {

// A blob around a plan (tests/runtime/tensorrt_fake/plan.h). With `ours`, a checksum and a sha256
// that names it; else as Torch-TensorRT writes it. With `rtx`, of TensorRT-RTX. With `network`, of
// an ONNX network with this metadata.
Bytes make_blob(const std::string& bindings, const std::string& plan, const std::string& more = "",
                bool ours = true, bool rtx = false, const std::string& network = "");

// An engine of ours with the input x and the output y, of float32 and one shape, and these lines of
// a plan; `range`: of both.
Bytes unary_blob(const std::string& shape, const std::string& lines, const std::string& range = "",
                 const std::string& more = "", bool rtx = false);

// A plan that doubles float32 [2, 8] from `x` into `y`, and a blob of ours around it.
extern const std::string kDoublingPlan;
Bytes doubling_blob();

// A float32 binding of a blob of ours, and one of Torch-TensorRT's.
std::string binding(const char* name, const std::string& shape, bool is_input,
                    const std::string& more = "");
std::string foreign(const char* name, bool is_input);
// The bindings x and y of unary_blob(), and the range of a dynamic shape.
std::string io(const std::string& shape, const std::string& more = "");
std::string range(const std::string& low, const std::string& best, const std::string& high);

Status try_load(const Bytes& blob, std::unique_ptr<Delegate>* delegate,
                const LoadOptions& options = {},
                const executorch::runtime::NamedDataMap* named_data = nullptr);
std::unique_ptr<Delegate> load(const Bytes& blob, const LoadOptions& options = {});
Status call(Delegate& delegate, std::vector<executorch::runtime::EValue*> values);

cuda::Api& api();

// Providers then open the fake of TensorRT 11.
void use_fake_tensorrt();

Bytes read_bytes(const std::string& path);

// Runs one test in a new process of this program, with a variable set.
bool succeeds_alone(const char* test, const std::string& blob_file, const char* variable,
                    const char* value);

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

// An engine that doubles [2, 8], and tensors on a GPU.
struct Scaling {
  explicit Scaling(const LoadOptions& options = {}, const Bytes& blob = doubling_blob());
  Status run() { return call(*delegate, {&x.value, &y.value}); }

  std::unique_ptr<Delegate> delegate;
  Device in{16, 0, 3.0F}, out{16, 0, 0.0F};
  OwnedTensor x{{2, 8}, in.data}, y{{2, 8}, out.data};
};

}  // namespace trt_et
