#include "provider_support.h"

#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "blob/crc32c.h"
#include "cuda/cuda_api.h"

namespace executorch::extension::cuda {
thread_local std::optional<void*> t_caller_stream;
__attribute__((visibility("default"), used)) std::optional<void*> getCallerStream() {
  return t_caller_stream;
}
}  // namespace executorch::extension::cuda

namespace trt_et {

using executorch::extension::cuda::t_caller_stream;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;
using executorch::runtime::Span;
using executorch::runtime::etensor::DeviceType;

Bytes make_blob(const std::string& bindings, const std::string& plan, const std::string& more,
                bool ours, bool rtx, const std::string& network) {
  std::string json = "{\"io_bindings\":[" + bindings + "]" + more;
  if (ours) {
    std::string name(64, '0');
    std::snprintf(name.data(), 9, "%08x", crc32c(0, plan.data(), plan.size()));
    name[8] = '0';
    const char* builder = !network.empty() ? "onnx\",\"library_version\":\"onnx 1 opset 20"
                          : rtx            ? "tensorrt_rtx\",\"library_version\":\"1.7.3"
                                           : "tensorrt\",\"library_version\":\"11.7.3";
    json +=
        std::string(",\"device_id\":0,\"builder\":\"") + builder + "\",\"sha256\":\"" + name + "\"";
    if (!network.empty()) json += ",\"network\":" + network;
  }
  json += "}";
  const bool aliased = more.find("aliased_io") != std::string::npos;
  return pack(aliased ? "TR02" : "TR01", json, plan, ours);
}

Bytes unary_blob(const std::string& shape, const std::string& lines, const std::string& range,
                 const std::string& more, bool rtx) {
  const std::string plan =
      "fake\ninput x float32 " + shape + "\noutput y float32 " + shape + "\n" + lines;
  return make_blob(io(shape, range), plan, more, true, rtx);
}

std::string io(const std::string& shape, const std::string& more) {
  return binding("x", shape, true, more) + "," + binding("y", shape, false, more);
}

std::string range(const std::string& low, const std::string& best, const std::string& high) {
  return ",\"min_shape\":[" + low + "],\"opt_shape\":[" + best + "],\"max_shape\":[" + high + "]";
}

const std::string kDoublingPlan =
    "fake\nweights 4096\nscratch 512\ninput x float32 2,8\noutput y float32 2,8\nscale y x 2\n";

Bytes doubling_blob() { return plan_blob(kDoublingPlan); }

Bytes sum_blob() {
  return plan_blob(
      "fake\ninput new float32 8\ninput state float32 8\noutput next float32 8\n"
      "sum next state new\n");
}

Bytes plan_blob(const std::string& plan, const std::string& more, bool ours) {
  std::string bindings;
  std::istringstream lines(plan);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind, name, dtype, dims;
    words >> kind >> name >> dtype >> dims;
    const bool is_input = kind == "input";
    if (!is_input && kind != "output") continue;
    if (!bindings.empty()) bindings += ",";
    bindings += ours ? binding(name, dims, is_input) : foreign(name, is_input);
  }
  return make_blob(bindings, plan, more, ours);
}

std::string binding(const std::string& name, const std::string& shape, bool is_input,
                    const std::string& more) {
  return "{\"name\":\"" + name + "\",\"dtype\":\"float32\",\"shape\":[" + shape +
         "],\"is_input\":" + (is_input ? "true" : "false") + more + "}";
}

std::string foreign(const std::string& name, bool is_input) {
  return "{\"name\":\"" + name +
         "\",\"dtype\":\"\",\"shape\":[],\"is_input\":" + (is_input ? "true" : "false") + "}";
}

Status try_load(const Bytes& blob, std::unique_ptr<Delegate>* delegate, const LoadOptions& options,
                const executorch::runtime::NamedDataMap* named_data) {
  FreeableBuffer buffer(blob.data(), blob.size(), nullptr);
  Status status = Delegate::create(&buffer, named_data, options, delegate);
  CHECK(!status.ok() || buffer.data() == nullptr);  // The bytes are given back.
  return status;
}

std::unique_ptr<Delegate> load(const Bytes& blob, const LoadOptions& options) {
  std::unique_ptr<Delegate> delegate;
  CHECK_OK(try_load(blob, &delegate, options));
  return delegate;
}

Scaling::Scaling(const LoadOptions& options, const Bytes& blob) : delegate(load(blob, options)) {}

Status call(Delegate& delegate, std::vector<EValue*> values) {
  return delegate.execute(Span<EValue*>(values.data(), values.size()));
}

void check_call(Delegate& delegate, float value, float expected) {
  std::vector<float> in(16, value), out(16, expected - 1);
  OwnedTensor x({2, 8}, in.data()), y({2, 8}, out.data());
  CHECK_OK(call(delegate, {&x.value, &y.value}));
  CHECK(out == std::vector<float>(16, expected));
}

cuda::Api& api() {
  cuda::Api* found = nullptr;
  CHECK_OK(cuda::access(&found));
  return *found;
}

void use_fake_tensorrt() {
  set_environment_variable("TRT_ET_TENSORRT_LIBRARY", TRT_ET_FAKE_LIBRARY);
}

Bytes read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

bool succeeds_alone(const char* test, const std::string& blob_file, const char* variable,
                    const char* value) {
  std::string program = "/proc/self/exe", file = blob_file, name = test;
  char* const arguments[] = {program.data(), file.data(), name.data(), nullptr};
  pid_t child = 0;
  int status = -1;
  CHECK(setenv(variable, value, 1) == 0);
  CHECK(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ) == 0);
  CHECK(unsetenv(variable) == 0);
  CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

uint64_t counter(const char* name) {
  uint64_t value = 0;
  CHECK(trt_et_counter(name, &value) == 0);
  return value;
}

Counts stats() {
  Counts found{};
#define TRT_ET_READ(name) found.name = counter(#name)
  TRT_ET_READ(mallocs), TRT_ET_READ(frees), TRT_ET_READ(launches), TRT_ET_READ(calls);
  TRT_ET_READ(copies_h2d), TRT_ET_READ(copies_d2h), TRT_ET_READ(copies_d2d);
  TRT_ET_READ(copies_peer), TRT_ET_READ(bytes_h2d), TRT_ET_READ(bytes_d2h);
  TRT_ET_READ(synchronizations);
#undef TRT_ET_READ
  found.live_bytes[0] = counter("live_bytes:0");
  found.live_bytes[1] = counter("live_bytes:1");
  return found;
}

Result<void*> StockAllocator::allocate(size_t size, DeviceIndex index, size_t) {
  void* memory = nullptr;
  cuda::DeviceGuard guard(api());
  CHECK_OK(guard.enter(index));
  CHECK_OK(api().allocate(size, &memory));
  return memory;
}

void StockAllocator::deallocate(void* memory, DeviceIndex) { CHECK_OK(api().release(memory)); }

Error StockAllocator::copy_host_to_device(void* to, const void* from, size_t size, DeviceIndex) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  const Bytes& copy = read_.emplace_back(bytes, bytes + size);
  const cuda::Stream stream = t_caller_stream.value_or(cuda::kLegacyStream);
  return api().copy(to, copy.data(), size, cuda::CopyKind::host_to_device, stream).error;
}

Error StockAllocator::copy_device_to_host(void* to, const void* from, size_t size, DeviceIndex) {
  const cuda::Stream stream = t_caller_stream.value_or(cuda::kLegacyStream);
  CHECK_OK(api().copy(to, from, size, cuda::CopyKind::device_to_host, stream));
  return api().synchronize_stream(stream).error;
}

DeviceType StockAllocator::device_type() const { return DeviceType::CUDA; }

Device::Device(size_t count, int index, float value)
    : device(index),
      values(count, value),
      allocator(executorch::runtime::get_device_allocator(DeviceType::CUDA)) {
  auto memory = allocator->allocate(count * 4 + 512, static_cast<int8_t>(index), 16);
  CHECK(memory.ok());
  base = static_cast<uint8_t*>(*memory);
  data = base;
  write();
}

Device::~Device() {
  executorch::runtime::get_device_allocator(DeviceType::CUDA)
      ->deallocate(base, static_cast<int8_t>(device));
}

void Device::write() {
  CHECK(allocator->copy_host_to_device(data, values.data(), values.size() * 4,
                                       static_cast<int8_t>(device)) == Error::Ok);
}

void Device::fill(float value) {
  values.assign(values.size(), value);
  write();
}

float Device::read(size_t at) {
  CHECK(allocator->copy_device_to_host(values.data(), data, values.size() * 4,
                                       static_cast<int8_t>(device)) == Error::Ok);
  return values[at];
}

}  // namespace trt_et
