#include "cuda_rules.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "bound_program.h"
#include "cuda/cuda_api.h"
#include "loaded_method.h"

namespace trt_et::gpu_check {
namespace {

using Bytes = std::vector<uint8_t>;

cuda::Stream new_stream(cuda::StreamKind kind) {
  cuda::Stream stream = nullptr;
  check(cuda0().create_stream(kind, &stream), "making a stream");
  return stream;
}

// An engine with memory for several sets of its tensors; the last tensor is its output.
class BoundEngine {
 public:
  BoundEngine(const std::string& engine, const std::string& library,
              const std::vector<IoTensor>& tensors, int sets)
      : bare_(library, read(engine)), tensors_(tensors) {
    bare_.create_context();
    for (int set = 0; set < sets; ++set) {
      std::vector<void*> addresses;
      for (const IoTensor& tensor : tensors_) {
        void* memory = nullptr;
        check(cuda0().allocate(tensor.bytes, &memory), "allocating");
        // Each set computes from other inputs.
        const std::vector<float> values(tensor.bytes / 4, static_cast<float>(set + 1));
        check(cuda0().copy(memory, values.data(), tensor.bytes, cuda::CopyKind::host_to_device,
                           cuda::kLegacyStream),
              "filling");
        check(cuda0().synchronize_stream(cuda::kLegacyStream), "filling");
        addresses.push_back(memory);
      }
      sets_.push_back(addresses);
    }
  }

  void enqueue(size_t set, cuda::Stream stream) {
    if (!bare_.enqueue(tensors_, sets_[set], stream)) bench::die("TensorRT refuses a run");
  }

  void clear_output(size_t set, cuda::Stream stream) {
    check(cuda0().zero(sets_[set].back(), tensors_.back().bytes, stream), "clearing");
  }

  // Queues the copy of an output; the stream's owner waits for it.
  void copy_output(size_t set, Bytes& to, cuda::Stream stream) {
    to.resize(tensors_.back().bytes);
    check(cuda0().copy(to.data(), sets_[set].back(), to.size(), cuda::CopyKind::device_to_host,
                       stream),
          "reading");
  }

 private:
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  BareEngine bare_;
  std::vector<IoTensor> tensors_;
  std::vector<std::vector<void*>> sets_;
};

int report(int rounds, int wrong) {
  std::printf("runs %d\nwrong %d\n", rounds, wrong);
  return wrong == 0 ? 0 : 2;
}

}  // namespace

int check_rebinding(const std::string& engine, const std::string& library, int rounds,
                    const std::vector<IoTensor>& tensors) {
  const cuda::Stream stream = new_stream(cuda::StreamKind::non_blocking);
  BoundEngine bound(engine, library, tensors, 2);
  Bytes expected[2], found;
  for (const size_t set : {0, 1}) {
    bound.enqueue(set, stream);
    bound.copy_output(set, expected[set], stream);
    check(cuda0().synchronize_stream(stream), "waiting");
  }
  if (expected[0] == expected[1]) bench::die("both sets of inputs give the same output");
  int wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const size_t set : {0, 1}) bound.clear_output(set, stream);
    for (const size_t set : {0, 1, 0, 1}) bound.enqueue(set, stream);
    for (const size_t set : {0, 1}) {
      bound.copy_output(set, found, stream);
      check(cuda0().synchronize_stream(stream), "waiting");
      if (found != expected[set]) ++wrong;
    }
  }
  return report(rounds, wrong);
}

int check_barrier(const std::string& engine, const std::string& library, int rounds,
                  const std::vector<IoTensor>& tensors) {
  const cuda::Stream writer = new_stream(cuda::StreamKind::non_blocking);
  const cuda::Stream reader = new_stream(cuda::StreamKind::blocking);
  BoundEngine bound(engine, library, tensors, 1);
  cuda::Event event = nullptr;
  check(cuda0().create_event(&event), "making an event");
  Bytes expected, found;
  bound.enqueue(0, writer);
  bound.copy_output(0, expected, writer);
  check(cuda0().synchronize_stream(writer), "waiting");
  int wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    bound.clear_output(0, writer);
    check(cuda0().synchronize_stream(writer), "waiting");
    for (int run = 0; run < 8; ++run) bound.enqueue(0, writer);  // Keeps the GPU busy for a while.
    bound.clear_output(0, writer);
    bound.enqueue(0, writer);
    check(cuda0().record_event(event, writer), "recording");
    check(cuda0().wait_event(cuda::kLegacyStream, event), "ordering");
    bound.copy_output(0, found, reader);
    check(cuda0().synchronize_stream(reader), "waiting");
    if (found != expected) ++wrong;
    check(cuda0().synchronize_stream(writer), "waiting");
  }
  return report(rounds, wrong);
}

int leave_to_static_objects(const std::string& program) {
  static std::unique_ptr<bench::LoadedMethod> method;
  method = std::make_unique<bench::LoadedMethod>(program);
  method->bind(true);
  method->execute();
  std::printf("left 1\n");
  return 0;
}

int list_primary_contexts(const std::string& program) {
  cuda::Api* api = nullptr;
  int devices = 0;
  check(cuda::access(&api), "CUDA");
  check(api->device_count(&devices), "counting GPUs");
  bench::LoadedMethod method(program);
  method.bind(true);
  method.execute();
  std::printf("gpus %d\n", devices);
  if (api->simulated()) return 0;  // They have no contexts.
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  using State = int (*)(int, unsigned*, int*);
  const auto state = reinterpret_cast<State>(
      driver == nullptr ? nullptr : dlsym(driver, "cuDevicePrimaryCtxGetState"));
  if (state == nullptr) bench::die("libcuda.so.1 has no cuDevicePrimaryCtxGetState");
  for (int device = 0; device < devices; ++device) {
    unsigned flags = 0;
    int active = 0;
    if (state(device, &flags, &active) != 0) bench::die("cuDevicePrimaryCtxGetState failed");
    std::printf("primary_context_%d %d\n", device, active);
  }
  return 0;
}

}  // namespace trt_et::gpu_check
