// An ONNX model in a session of onnxruntime: its bindings, and runs of it on host memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "host_engine.h"
#include "onnxruntime.h"
#include "trt_et/engine_provider.h"

namespace trt_et::onnx {

// An input or output of the model. A dimension of -1 is dynamic.
struct Tensor {
  std::string name;
  bool is_input = false;
  ScalarType dtype = ScalarType::Float;
  std::vector<int64_t> dims;
};

// The session; shared by the contexts, which run it at the same time.
class Network {
 public:
  // The model has exactly the request's bindings, and no pointer of the request is kept.
  static Status load(const trt_et_engine_request& request, std::unique_ptr<Network>* network);

  // In the order of the request's bindings.
  const std::vector<Tensor>& tensors() const { return tensors_; }

  // See HostRun.
  Status run(std::vector<HostMemory>* memory) const;

 private:
  explicit Network(const Library& library)
      : library_(library), session_(nullptr, library.ReleaseSession) {}
  Status create_session(const trt_et_engine_request& request);
  Status add_weights(const trt_et_engine_request& request, OrtSessionOptions* options) const;
  Status read_tensor(size_t index, bool is_input, Tensor* tensor) const;
  Status read_tensors(const trt_et_engine_request& request);
  Status take_output(const Tensor& tensor, OrtValue* value, HostMemory* memory) const;

  const Library& library_;
  Owned<OrtSession> session_;
  std::vector<Tensor> tensors_;
};

}  // namespace trt_et::onnx
