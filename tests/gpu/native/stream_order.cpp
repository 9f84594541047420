#include "stream_order.h"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "cuda/cuda_api.h"
#include "loaded_method.h"

namespace trt_et::gpu_check {
namespace {

using cuda::CopyKind;
using Floats = std::vector<float>;

void check(const Status& status, const char* what) {
  if (!status.ok()) bench::die(std::string(what) + ": " + status.text);
}

cuda::Api& api() {
  cuda::Api* found = nullptr;
  check(cuda::access(&found), "CUDA");
  return *found;
}

struct Tensor {
  void* data;
  size_t bytes;
};

class Program {
 public:
  explicit Program(const std::string& path) : method_(path) {
    method_.bind(true);
    auto& method = method_.method();
    std::vector<executorch::runtime::EValue> values(method.inputs_size());
    if (method.get_inputs(values.data(), values.size()) != Error::Ok) bench::die("inputs");
    for (const auto& value : values) add(inputs_, value);
    for (size_t i = 0; i < method.outputs_size(); ++i) add(outputs_, method.get_output(i));
    for (const float value : {1.0F, 2.0F, NAN}) {
      for (const Tensor& input : inputs_)
        patterns_[key(value)].emplace_back(input.bytes / 4, value);
    }
  }

  // The inputs are there, and nobody reads them any more.
  Floats run_alone(float value) {
    write(value);
    wait_for_everything();
    method_.execute();
    wait_for_everything();
    return read();
  }

  Floats run_between_copies(float value) {
    write(value);
    method_.execute();
    write(NAN);
    return read();
  }

 private:
  static int key(float value) { return std::isnan(value) ? -1 : static_cast<int>(value); }

  static void add(std::vector<Tensor>& tensors, const executorch::runtime::EValue& value) {
    if (!value.isTensor()) return;
    const auto& tensor = value.toTensor();
    tensors.push_back({const_cast<void*>(tensor.const_data_ptr()), tensor.nbytes()});
  }

  void write(float value) {
    const auto& patterns = patterns_.at(key(value));
    for (size_t i = 0; i < inputs_.size(); ++i) {
      check(api().copy(inputs_[i].data, patterns[i].data(), inputs_[i].bytes,
                       CopyKind::host_to_device, cuda::kLegacyStream),
            "a copy to the GPU");
    }
  }

  Floats read() {
    size_t bytes = 0;
    for (const Tensor& output : outputs_) bytes += output.bytes;
    Floats found(bytes / 4);
    auto* to = reinterpret_cast<uint8_t*>(found.data());
    for (const Tensor& output : outputs_) {
      check(
          api().copy(to, output.data, output.bytes, CopyKind::device_to_host, cuda::kLegacyStream),
          "a copy to the host");
      to += output.bytes;
    }
    check(api().synchronize_stream(cuda::kLegacyStream), "waiting");
    return found;
  }

  // As freeing memory does.
  void wait_for_everything() {
    void* memory = nullptr;
    check(api().allocate(1, &memory), "allocating");
    check(api().release(memory), "releasing");
  }

  bench::LoadedMethod method_;
  std::vector<Tensor> inputs_, outputs_;
  std::map<int, std::vector<Floats>> patterns_;
};

}  // namespace

int check_order(const std::string& path, int rounds) {
  cuda::Entered entered;
  check(api().enter_device(0, &entered), "choosing cuda:0");
  std::map<int, Floats> expected;
  int wrong = 0;
  {
    Program program(path);
    for (const int value : {1, 2}) expected[value] = program.run_alone(static_cast<float>(value));
    for (int i = 0; i < rounds; ++i) {
      const int value = 1 + i % 2;
      if (program.run_between_copies(static_cast<float>(value)) != expected[value]) ++wrong;
    }
  }
  std::atomic<int> wrong_in_threads{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      cuda::Entered entered;
      check(api().enter_device(0, &entered), "choosing cuda:0");
      for (int i = 0; i < rounds; i += 10) {
        Program program(path);
        for (int run = 0; run < 10; ++run) {
          const int value = 1 + (run + thread) % 2;
          const Floats found = program.run_between_copies(static_cast<float>(value));
          if (found != expected.at(value)) ++wrong_in_threads;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("runs %d\nwrong %d\nwrong_in_threads %d\n", rounds, wrong, wrong_in_threads.load());
  return wrong == 0 && wrong_in_threads == 0 ? 0 : 2;
}

}  // namespace trt_et::gpu_check
