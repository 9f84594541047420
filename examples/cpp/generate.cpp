// Answers a prompt: token ids in, token ids out, each as soon as it is known.
//
//   TRT_ET_CUDA=simulated:1 generate model.pte 8 3 1 4    # 8 tokens after 3, 1 and 4
//   generate model.pte 8 3 1 4 --temperature 0.7 --seed 1
//
// The program comes from trt_et.llm.export_llm with io_on_gpu=True: tokens, position and results
// are in memory of the GPU. A step copies nothing across the host; this program does, to choose and
// print a token: a row of logits, or with sampling=True, when the engine chooses, 8 bytes. Only
// such a program takes a temperature. A prompt of more than max_prompt tokens is read in pieces.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/platform/runtime.h>
#include <trt_et/runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

using executorch::aten::Device;
using executorch::aten::DeviceType;
using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::aten::Tensor;
using executorch::extension::clone_tensor_ptr_to;
using executorch::extension::make_tensor_ptr;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Result;

namespace {

constexpr char kOnHost[] = "the program was not exported with export_llm(..., io_on_gpu=True)";

int fail(const char* what, Error error) {
  std::fprintf(stderr, "%s: %s %s\n", what, executorch::runtime::to_string(error),
               trt_et_last_error());
  return 1;
}

// What a constant method of the program returns, if it has that method.
std::optional<int64_t> constant(Module& module, const char* name) {
  const auto names = module.method_names();
  if (!names.ok() || names->count(name) == 0) return std::nullopt;
  const auto value = module.get(name);
  if (!value.ok() || !value->isInt()) return std::nullopt;
  return value->toInt();
}

// Whether a text of so many positions fits the cache, if the program says how many it holds.
bool fits(Module& module, int64_t positions) {
  const auto held = constant(module, "get_max_context_len");
  if (!held || positions <= *held) return true;
  std::fprintf(stderr,
               "prompt and answer need %lld positions; the program's cache holds %lld: generate "
               "fewer tokens, or export with a larger cache_length\n",
               static_cast<long long>(positions), static_cast<long long>(*held));
  return false;
}

// The number of inputs, if they are in memory of the GPU; none is planned for them.
size_t inputs_on_gpu(Module& module) {
  const auto method = module.method_meta("forward");
  if (!method.ok() || method->num_inputs() < 2) return 0;
  const auto ids = method->input_tensor_meta(0);
  return ids.ok() && !ids->is_memory_planned() ? method->num_inputs() : 0;
}

template <typename T>
TensorPtr on_gpu(std::vector<T> values, std::vector<SizesType> sizes) {
  return clone_tensor_ptr_to(make_tensor_ptr(std::move(sizes), std::move(values)),
                             Device(DeviceType::CUDA, 0));
}

template <typename T>
int64_t largest(const Tensor& logits) {
  const T* row = logits.const_data_ptr<T>();
  return std::max_element(row, row + logits.numel()) - row;
}

// The token that a program with sampling=True returned, or the most likely one.
int64_t token_of(const Tensor& result) {
  const TensorPtr here = clone_tensor_ptr_to(make_tensor_ptr(result), Device(DeviceType::CPU));
  switch (here->scalar_type()) {
    case ScalarType::Long:
      return *here->const_data_ptr<int64_t>();
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

// One text: what was read so far is in the program's cache.
class Text {
 public:
  Text(Module& module, bool samples, float temperature, uint32_t seed)
      : module_(module), samples_(samples), temperature_(temperature), engine_(seed) {
    most_ = constant(module, "get_max_seq_len").value_or(INT64_MAX);
  }

  // Reads tokens, in pieces that the program takes, and returns the token after them.
  Result<int64_t> read(const std::vector<int64_t>& tokens) {
    std::vector<EValue> results;
    const auto count = static_cast<int64_t>(tokens.size());
    for (int64_t start = 0; start < count; start += most_) {
      const auto length = std::min(most_, count - start);
      const auto first = tokens.begin() + start;
      const auto tensors = inputs_of({first, first + length});
      std::vector<EValue> inputs;
      for (const TensorPtr& tensor : tensors) inputs.emplace_back(*tensor);
      const uint64_t before = bytes_copied();
      results = ET_UNWRAP(module_.forward(inputs));
      copied_ += bytes_copied() - before;
      position_ += length;
    }
    ET_CHECK_OR_RETURN_ERROR(results.size() == 1 && results[0].isTensor() &&
                                 results[0].toTensor().device_type() == DeviceType::CUDA,
                             InvalidProgram, "%s", kOnHost);
    return token_of(results[0].toTensor());
  }

  // Bytes that the program's calls copied across the host.
  uint64_t copied() const { return copied_; }

 private:
  std::vector<TensorPtr> inputs_of(std::vector<int64_t> tokens) {
    const auto length = static_cast<SizesType>(tokens.size());
    std::vector<TensorPtr> inputs = {on_gpu(std::move(tokens), {1, length}),
                                     on_gpu<int64_t>({position_}, {1})};
    if (samples_) {
      inputs.push_back(on_gpu<float>({temperature_}, {1}));
      inputs.push_back(on_gpu<float>({random_(engine_)}, {1}));
    }
    return inputs;
  }

  Module& module_;
  const bool samples_;
  const float temperature_;
  std::mt19937 engine_;
  std::uniform_real_distribution<float> random_;
  int64_t most_;
  int64_t position_ = 0;
  uint64_t copied_ = 0;
};

// Takes an option out of the arguments, and returns its value.
const char* take(std::vector<const char*>& arguments, const char* name, const char* otherwise) {
  const auto is_name = [name](const char* argument) { return std::strcmp(argument, name) == 0; };
  const auto found = std::find_if(arguments.begin(), arguments.end(), is_name);
  if (arguments.end() - found < 2) return otherwise;
  const char* value = found[1];
  arguments.erase(found, found + 2);
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<const char*> arguments(argv + 1, argv + argc);
  const float temperature = std::strtof(take(arguments, "--temperature", "0"), nullptr);
  const auto seed = static_cast<uint32_t>(std::atoll(take(arguments, "--seed", "0")));
  if (arguments.size() < 3) {
    std::fprintf(stderr, "usage: generate model.pte COUNT TOKEN... [--temperature T --seed N]\n");
    return 2;
  }
  executorch::runtime::runtime_init();
  const int count = std::atoi(arguments[1]);
  std::vector<int64_t> tokens;
  for (size_t i = 2; i < arguments.size(); ++i) tokens.push_back(std::atoll(arguments[i]));

  Module module(arguments[0]);
  const Error loaded = module.load_forward();
  if (loaded != Error::Ok) return fail("loading failed", loaded);
  const size_t inputs = inputs_on_gpu(module);
  if (inputs == 0) return fail(kOnHost, Error::InvalidProgram);
  const bool samples = inputs == 4;
  if (temperature > 0 && !samples) {
    return fail("--temperature needs export_llm(..., sampling=True)", Error::InvalidProgram);
  }
  // The last token of the answer is not read.
  if (!fits(module, static_cast<int64_t>(tokens.size()) + count - 1)) return 1;

  Text text(module, samples, temperature, seed);
  for (int step = 0; step < count; ++step) {
    const auto token = text.read(tokens);
    if (!token.ok()) return fail("a step failed", token.error());
    tokens = {*token};
    std::printf("%lld ", static_cast<long long>(*token));
    std::fflush(stdout);
  }
  std::printf("\n%llu bytes copied by the steps\n", static_cast<unsigned long long>(text.copied()));
  return 0;
}
