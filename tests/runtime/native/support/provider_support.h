// What the tests that drive delegates over the fake TensorRT have in common.
#pragma once

#include <executorch/runtime/core/device_allocator.h>

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "common/process.h"
#include "delegate/delegate.h"
#include "owned_tensor.h"
#include "parse_exactly.h"
#include "trt_et/runtime.h"
#include "trt_et/simulation.h"

// In place of ExecuTorch's CUDA extension, which is found by this name.
namespace executorch::extension::cuda {
extern thread_local std::optional<void*> t_caller_stream;
}

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

// A blob with the inputs and outputs that its plan names, all float32 and static.
Bytes plan_blob(const std::string& plan, const std::string& more = "", bool ours = true);

// A plan that doubles float32 [2, 8] from `x` into `y`, and a blob of ours around it.
extern const std::string kDoublingPlan;
Bytes doubling_blob();

// A blob that adds float32 [8] `new` to `state`, in place: into `next`.
Bytes sum_blob();

// A float32 binding of a blob of ours, and one of Torch-TensorRT's.
std::string binding(const std::string& name, const std::string& shape, bool is_input,
                    const std::string& more = "");
std::string foreign(const std::string& name, bool is_input);
// The bindings x and y of unary_blob(), and the range of a dynamic shape.
std::string io(const std::string& shape, const std::string& more = "");
std::string range(const std::string& low, const std::string& best, const std::string& high);

Status try_load(const Bytes& blob, std::unique_ptr<Delegate>* delegate,
                const LoadOptions& options = {},
                const executorch::runtime::NamedDataMap* named_data = nullptr);
std::unique_ptr<Delegate> load(const Bytes& blob, const LoadOptions& options = {});
Status call(Delegate& delegate, std::vector<executorch::runtime::EValue*> values);
// [2, 8] of `value` on the host gives [2, 8] of `expected`.
void check_call(Delegate& delegate, float value, float expected);

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

// Copies as ExecuTorch's own CUDA allocator does: on the legacy stream, or on the stream of a
// CallerStreamGuard. Pageable memory has been read when the call returns, but the device's may not
// have been written. Its memory holds what was there.
class StockAllocator final : public executorch::runtime::DeviceAllocator {
 public:
  using DeviceIndex = executorch::runtime::etensor::DeviceIndex;

  executorch::runtime::Result<void*> allocate(size_t size, DeviceIndex index, size_t) override;
  void deallocate(void* memory, DeviceIndex) override;
  Error copy_host_to_device(void* to, const void* from, size_t size, DeviceIndex) override;
  Error copy_device_to_host(void* to, const void* from, size_t size, DeviceIndex) override;
  executorch::runtime::etensor::DeviceType device_type() const override;

 private:
  std::list<Bytes> read_;
};

// Planned memory of a GPU with values, from the allocator that is registered; freed at the end.
struct Device {
  Device(size_t count, int index, float value);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  void write();
  void fill(float value);
  float read(size_t at);

  int device;
  std::vector<float> values;
  executorch::runtime::DeviceAllocator* allocator;  // copies
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
