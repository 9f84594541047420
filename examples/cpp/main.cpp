// Runs the first method of a program once, with inputs of ones, and prints its float outputs.
//
//   run_pte model.pte    # without a GPU: engines of builder="reference"
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/platform/runtime.h>
#include <trt_et/runtime.h>

#include <cstdio>
#include <vector>

using executorch::extension::Module;
using executorch::runtime::Error;
using executorch::runtime::EValue;

namespace {

int fail(const char* what, Error error) {
  // ExecuTorch's error is a number; the backend has a message for it.
  std::fprintf(stderr, "%s: %s %s\n", what, executorch::runtime::to_string(error),
               trt_et_last_error());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: run_pte model.pte\n"), 2;
  executorch::runtime::runtime_init();
  std::printf("trt-et %s\n", trt_et_version());

  Module module(argv[1]);
  const Error loaded = module.load_method("forward");
  if (loaded != Error::Ok) return fail("loading failed", loaded);

  const auto meta = module.method_meta("forward");
  if (!meta.ok()) return fail("no method 'forward'", meta.error());
  std::vector<executorch::extension::TensorPtr> tensors;
  std::vector<EValue> inputs;
  for (size_t i = 0; i < meta->num_inputs(); ++i) {
    const auto info = meta->input_tensor_meta(i);
    if (!info.ok()) return fail("an input is no tensor", info.error());
    tensors.push_back(executorch::extension::ones({info->sizes().begin(), info->sizes().end()},
                                                  info->scalar_type()));
    inputs.emplace_back(tensors.back());
  }

  const auto outputs = module.forward(inputs);
  if (!outputs.ok()) return fail("execution failed", outputs.error());
  for (const EValue& output : *outputs) {
    if (!output.isTensor()) continue;
    const auto& tensor = output.toTensor();
    const bool floats = tensor.scalar_type() == executorch::aten::ScalarType::Float;
    for (ssize_t i = 0; floats && i < tensor.numel(); ++i) {
      std::printf("%g ", static_cast<double>(tensor.const_data_ptr<float>()[i]));
    }
    std::printf("\n");
  }
  return 0;
}
