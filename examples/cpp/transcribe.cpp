// Transcribes features greedily, with the calls of ExecuTorch's AsrRunner: the encoder once, then
// the decoder and, if the program has it, the sampler for each token.
//
//   TRT_ET_CUDA=simulated:1 transcribe whisper.pte features.f32 1 40    # 1 starts a text of 40
//
// The program comes from trt_et.llm.export_speech with share_state=False, or also sampler=True. The
// file has the features as float32, one after the other.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/platform/runtime.h>
#include <trt_et/runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <unordered_set>
#include <vector>

using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::aten::Tensor;
using executorch::extension::from_blob;
using executorch::extension::make_tensor_ptr;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Result;

namespace {

int fail(const char* what, Error error) {
  std::fprintf(stderr, "%s: %s %s\n", what, executorch::runtime::to_string(error),
               trt_et_last_error());
  return 1;
}

// Bytes that simulated GPUs copied from and to the host so far.
uint64_t bytes_copied() {
  uint64_t in = 0, out = 0;
  trt_et_counter("bytes_h2d", &in);
  trt_et_counter("bytes_d2h", &out);
  return in + out;
}

// The file as a tensor of the size that the encoder was exported with.
Result<TensorPtr> read_features(Module& module, const char* path) {
  const auto meta = ET_UNWRAP(module.method_meta("encoder"));
  const auto input = ET_UNWRAP(meta.input_tensor_meta(0));
  std::vector<SizesType> sizes(input.sizes().begin(), input.sizes().end());
  std::vector<float> values(input.nbytes() / sizeof(float));
  std::ifstream file(path, std::ios::binary);
  if (input.scalar_type() != ScalarType::Float ||
      !file.read(reinterpret_cast<char*>(values.data()),
                 static_cast<std::streamsize>(input.nbytes()))) {
    return Error::InvalidArgument;
  }
  return make_tensor_ptr(std::move(sizes), std::move(values));
}

// The most likely token: the sampler says it, or else the logits, which then are on the host.
Result<int64_t> next_token(Module& module, bool has_sampler, const std::vector<EValue>& logits) {
  if (has_sampler) {
    const auto sampled = ET_UNWRAP(module.execute("sampler", logits));
    return sampled.at(0).toTensor().const_data_ptr<int64_t>()[0];
  }
  const Tensor& row = logits.at(0).toTensor();
  if (row.scalar_type() != ScalarType::Float) return Error::InvalidProgram;
  const float* values = row.const_data_ptr<float>();
  return std::max_element(values, values + row.numel()) - values;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "usage: transcribe model.pte FILE START COUNT\n"), 2;
  executorch::runtime::runtime_init();
  const int count = std::atoi(argv[4]);

  Module module(argv[1], Module::LoadMode::Mmap);
  const auto names = module.method_names();
  if (!names.ok()) return fail("loading failed", names.error());
  const bool has_sampler = names->count("sampler") > 0;
  for (const char* name : {"encoder", "text_decoder"}) {
    if (const Error error = module.load_method(name); error != Error::Ok) return fail(name, error);
  }
  if (has_sampler && module.load_method("sampler") != Error::Ok) {
    return fail("sampler", Error::InvalidProgram);
  }
  std::unordered_set<int64_t> ends;
  if (const auto ids = module.execute("get_eos_ids"); ids.ok()) {
    for (const EValue& id : *ids) ends.insert(id.toInt());
  }

  const auto features = read_features(module, argv[2]);
  if (!features.ok()) return fail("reading the features failed", features.error());
  const auto encoded = module.execute("encoder", *features);
  if (!encoded.ok()) return fail("encoder", encoded.error());

  int64_t token = std::atoll(argv[3]), position = 0;
  const TensorPtr ids = from_blob(&token, {1, 1}, ScalarType::Long);
  const TensorPtr at = from_blob(&position, {1}, ScalarType::Long);
  const std::vector<EValue> inputs = {ids, encoded->at(0), at};
  const uint64_t before = bytes_copied();
  for (; position < count && ends.count(token) == 0; ++position) {
    const auto logits = module.execute("text_decoder", inputs);
    if (!logits.ok()) return fail("text_decoder", logits.error());
    const auto next = next_token(module, has_sampler, *logits);
    if (!next.ok()) return fail("sampler", next.error());
    token = *next;
    std::printf("%lld ", static_cast<long long>(token));
  }
  const auto steps = static_cast<uint64_t>(std::max<int64_t>(position, 1));
  std::printf("\n%llu bytes copied by a step\n",
              static_cast<unsigned long long>((bytes_copied() - before) / steps));
  return 0;
}
