// Answers a prompt greedily: token ids in, token ids out, each as soon as it is known.
//
//   TRT_ET_CUDA=simulated:1 generate model.pte 8 3 1 4    # 8 tokens after 3, 1 and 4
//
// The program comes from trt_et.llm.export_llm with io_on_gpu=True: tokens, position and logits are
// in memory of the GPU. A step copies nothing across the host. The sampler does, for it runs on the
// CPU here; a sampler on the GPU would use the logits and the token in place.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/platform/runtime.h>
#include <trt_et/runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

using executorch::aten::Device;
using executorch::aten::DeviceType;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::extension::clone_tensor_ptr_to;
using executorch::extension::make_tensor_ptr;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;

namespace {

constexpr char kOnHost[] = "the program was not exported with export_llm(..., io_on_gpu=True)";

int fail(const char* what, Error error) {
  std::fprintf(stderr, "%s: %s %s\n", what, executorch::runtime::to_string(error),
               trt_et_last_error());
  return 1;
}

// Whether a text of so many positions fits the cache, if the program says how many it holds.
bool fits(Module& module, int64_t positions) {
  const auto names = module.method_names();
  if (!names.ok() || names->count("get_max_context_len") == 0) return true;
  const auto held = module.get("get_max_context_len");
  if (!held.ok() || !held->isInt() || positions <= held->toInt()) return true;
  std::fprintf(stderr,
               "prompt and answer need %lld positions; the program's cache holds %lld: generate "
               "fewer tokens, or export with a larger cache_length\n",
               static_cast<long long>(positions), static_cast<long long>(held->toInt()));
  return false;
}

// With io_on_gpu=True, no memory is planned for the inputs.
bool takes_inputs_on_gpu(Module& module) {
  const auto method = module.method_meta("forward");
  if (!method.ok() || method->num_inputs() != 2) return false;
  const auto ids = method->input_tensor_meta(0);
  return ids.ok() && !ids->is_memory_planned();
}

TensorPtr on_gpu(std::vector<int64_t> values, std::vector<executorch::aten::SizesType> sizes) {
  return clone_tensor_ptr_to(make_tensor_ptr(std::move(sizes), std::move(values)),
                             Device(DeviceType::CUDA, 0));
}

template <typename T>
int64_t largest(const Tensor& logits) {
  const T* row = logits.const_data_ptr<T>();
  return std::max_element(row, row + logits.numel()) - row;
}

int64_t sample(const Tensor& logits) {
  const TensorPtr here = clone_tensor_ptr_to(make_tensor_ptr(logits), Device(DeviceType::CPU));
  switch (here->scalar_type()) {
    case ScalarType::BFloat16:
      return largest<executorch::aten::BFloat16>(*here);
    case ScalarType::Half:
      return largest<executorch::aten::Half>(*here);
    default:
      return largest<float>(*here);
  }
}

// Bytes that simulated GPUs copied from and to the host so far.
uint64_t bytes_copied() {
  uint64_t in = 0, out = 0;
  trt_et_counter("bytes_h2d", &in);
  trt_et_counter("bytes_d2h", &out);
  return in + out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return std::fprintf(stderr, "usage: generate model.pte COUNT TOKEN...\n"), 2;
  executorch::runtime::runtime_init();
  const int count = std::atoi(argv[2]);
  std::vector<int64_t> tokens;
  for (int i = 3; i < argc; ++i) tokens.push_back(std::atoll(argv[i]));

  Module module(argv[1]);
  const Error loaded = module.load_forward();
  if (loaded != Error::Ok) return fail("loading failed", loaded);
  if (!takes_inputs_on_gpu(module)) return fail(kOnHost, Error::InvalidProgram);
  // The last token of the answer is not read.
  if (!fits(module, static_cast<int64_t>(tokens.size()) + count - 1)) return 1;

  int64_t position = 0;
  uint64_t copied = 0;
  for (int step = 0; step < count; ++step) {
    const auto length = static_cast<int64_t>(tokens.size());
    const TensorPtr ids = on_gpu(tokens, {1, static_cast<executorch::aten::SizesType>(length)});
    const TensorPtr at = on_gpu({position}, {1});
    const uint64_t before = bytes_copied();
    const auto done = module.forward({ids, at});
    if (!done.ok()) return fail("a step failed", done.error());
    copied += bytes_copied() - before;
    if (done->size() != 1 || !(*done)[0].isTensor() ||
        (*done)[0].toTensor().device_type() != DeviceType::CUDA) {
      return fail(kOnHost, Error::InvalidProgram);
    }
    position += length;
    tokens = {sample((*done)[0].toTensor())};
    std::printf("%lld ", static_cast<long long>(tokens[0]));
    std::fflush(stdout);
  }
  std::printf("\n%llu bytes copied by the steps\n", static_cast<unsigned long long>(copied));
  return 0;
}
