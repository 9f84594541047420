#include "onnx_provider.h"

#include <string_view>

#include "network.h"

namespace trt_et {
namespace onnx {
namespace {

// The session is shared by the contexts, which run it at the same time.
class Engine final : public HostEngine {
 public:
  using HostEngine::HostEngine;
  Status load(const trt_et_engine_request& request) {
    TRT_ET_TRY(Network::load(request, &network_));
    for (size_t i = 0; i < request.binding_count; ++i) {
      bindings.push_back(described(network_->tensors()[i], request.bindings[i]));
    }
    return {};
  }
  Status create_run(std::unique_ptr<HostRun>* run) override {
    *run = std::make_unique<Run>(*network_);
    return {};
  }

 private:
  struct Run final : HostRun {
    explicit Run(const Network& shared) : network(shared) {}
    Status run(std::vector<HostMemory>* memory) override { return network.run(memory); }
    const Network& network;
  };

  static trt_et_binding described(const Tensor& tensor, const trt_et_binding& asked) {
    trt_et_binding out{};
    out.is_input = tensor.is_input ? 1 : 0;
    out.dtype = static_cast<int32_t>(tensor.dtype);
    out.rank = static_cast<int32_t>(tensor.dims.size());
    out.alias_of = -1;
    for (size_t i = 0; i < tensor.dims.size(); ++i) {
      const bool dynamic = tensor.dims[i] < 0 && asked.dtype >= 0;
      out.dims[i] = dynamic ? asked.dims[i] : tensor.dims[i];
      out.min_dims[i] = dynamic ? asked.min_dims[i] : tensor.dims[i];
      out.max_dims[i] = dynamic ? asked.max_dims[i] : tensor.dims[i];
    }
    return out;
  }

  std::unique_ptr<Network> network_;
};

int probe(const trt_et_engine_request* request) {
  return host_call([&]() -> Status {
    if (std::string_view(request->builder) != "onnx") {
      return {Error::NotSupported, "onnxruntime takes payloads of the builder \"onnx\" only"};
    }
    const Library* library = nullptr;
    return open_library(&library);
  });
}

int load(const trt_et_engine_request* request, void** engine) {
  return host_call([&]() -> Status {
    auto loaded = std::make_unique<Engine>("ONNX", request->device);
    TRT_ET_TRY(loaded->load(*request));
    *engine = static_cast<HostEngine*>(loaded.release());
    return {};
  });
}

}  // namespace
}  // namespace onnx

const trt_et_engine_provider& onnx_provider() {
  static const trt_et_engine_provider table = [] {
    trt_et_engine_provider made = host_provider();
    made.name = "ONNX";
    made.probe = onnx::probe;
    made.load = onnx::load;
    return made;
  }();
  return table;
}

}  // namespace trt_et
