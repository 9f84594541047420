#include "provider_support.h"

#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "blob/crc32c.h"
#include "cuda/device_allocator.h"

namespace trt_et {

using executorch::runtime::FreeableBuffer;
using executorch::runtime::Span;

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

Bytes doubling_blob() { return make_blob(io("2,8"), kDoublingPlan); }

std::string binding(const char* name, const std::string& shape, bool is_input,
                    const std::string& more) {
  return std::string("{\"name\":\"") + name + "\",\"dtype\":\"float32\",\"shape\":[" + shape +
         "],\"is_input\":" + (is_input ? "true" : "false") + more + "}";
}

std::string foreign(const char* name, bool is_input) {
  return std::string("{\"name\":\"") + name +
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

cuda::Api& api() {
  cuda::Api* found = nullptr;
  CHECK_OK(cuda::access(&found));
  return *found;
}

void use_fake_tensorrt() {
  CHECK(setenv("TRT_ET_PROVIDER_PATH", TRT_ET_FAKE_FOLDER, 1) == 0);
  CHECK(setenv("TRT_ET_TENSORRT_LIBRARY", TRT_ET_FAKE_LIBRARY, 1) == 0);
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

Device::Device(size_t count, int index, float value) : device(index), values(count, value) {
  auto memory = cuda_allocator().allocate(count * 4 + 512, static_cast<int8_t>(index), 16);
  CHECK(memory.ok());
  base = static_cast<uint8_t*>(*memory);
  data = base;
  write();
}

Device::~Device() { cuda_allocator().deallocate(base, static_cast<int8_t>(device)); }

void Device::write() {
  CHECK(cuda_allocator().copy_host_to_device(data, values.data(), values.size() * 4,
                                             static_cast<int8_t>(device)) == Error::Ok);
}

float Device::read(size_t at) {
  CHECK(cuda_allocator().copy_device_to_host(values.data(), data, values.size() * 4,
                                             static_cast<int8_t>(device)) == Error::Ok);
  return values[at];
}

}  // namespace trt_et
