// onnxruntime on simulated GPUs: threads with a context each run one engine at the same time.
#include <thread>

#include "blob/blob.h"
#include "cuda/cuda_api.h"
#include "cuda/streams.h"
#include "engine/engine.h"
#include "host_engine.h"
#include "provider_support.h"
#include "tests.h"

using namespace trt_et;

namespace {

constexpr size_t kOnnxInputs = 16, kOnnxOutputs = 8;  // [2, 8] to [2, 4]

// The outputs for inputs of `value`, by a context of its own, on this thread's stream.
std::vector<float> run_onnx(const Engine& engine, float value) {
  cuda::DeviceGuard guard(api());
  CHECK_OK(guard.enter(0));
  Device x(kOnnxInputs, 0, value), y(kOnnxOutputs, 0, 0.0F);
  std::unique_ptr<Context> context;
  CHECK_OK(Context::create(engine, 0, &context));
  WorkStream work;  // this thread's, behind the copies to x
  CHECK_OK(thread_stream(api(), 0, &work));
  const cuda::Stream stream = work.handle;
  const int64_t dims[] = {2, 8};
  CHECK_OK(context->set_input_shape(0, dims, 2));
  CHECK_OK(context->prepare(stream));
  CHECK_OK(context->set_address(0, x.data, kOnnxInputs * sizeof(float)));
  CHECK_OK(context->set_address(1, y.data, kOnnxOutputs * sizeof(float)));
  for (int i = 0; i < 20; ++i) {
    CHECK_OK(context->enqueue(stream));
    CHECK_OK(api().synchronize_stream(stream));
  }
  std::vector<float> outputs;
  for (size_t i = 0; i < kOnnxOutputs; ++i) outputs.push_back(y.read(i));
  return outputs;
}

}  // namespace

void test_onnx_provider(const std::string& blob_file) {
  const Bytes bytes = read_bytes(blob_file + "_network");
  Blob blob;
  CHECK_OK(parse_blob(bytes.data(), bytes.size(), &blob));
  std::vector<trt_et_binding> bindings;
  OptDims opt_dims;
  const LoadOptions options;
  const trt_et_engine_request request = make_request(blob, 0, options, &bindings, &opt_dims);
  if (onnx_provider().probe(&request) == static_cast<int>(Error::NotFound)) {
    std::printf("NOT RUN: onnx_provider, for onnxruntime is not here\n");
    return;
  }
  std::shared_ptr<Engine> engine;
  CHECK_OK(Engine::load(onnx_provider(), blob, request, &engine));
  std::vector<std::vector<float>> expected, found(4);
  for (int i = 0; i < 4; ++i) expected.push_back(run_onnx(*engine, static_cast<float>(i)));
  CHECK(expected[0] != expected[1]);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < found.size(); ++i) {
    threads.emplace_back([&, i] { found[i] = run_onnx(*engine, static_cast<float>(i)); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(found == expected);
}
