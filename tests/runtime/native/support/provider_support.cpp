#include "provider_support.h"

#include <cstring>

#include "blob/crc32c.h"
#include "cuda/device_allocator.h"

namespace trt_et {

using executorch::runtime::FreeableBuffer;
using executorch::runtime::Span;

namespace {

void put(Bytes& out, size_t at, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) out[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

}  // namespace

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
  const size_t engine_at = (32 + json.size() + 15) / 16 * 16;
  Bytes blob(engine_at + plan.size());
  const bool aliased = more.find("aliased_io") != std::string::npos;
  std::memcpy(blob.data(), aliased ? "TR02" : "TR01", 4);
  put(blob, 4, 32, 4);
  put(blob, 8, json.size(), 4);
  put(blob, 12, engine_at, 4);
  put(blob, 16, plan.size(), 8);
  blob[24] = 1;
  blob[25] = ours ? 1 : 0;
  std::memcpy(blob.data() + 32, json.data(), json.size());
  std::memcpy(blob.data() + engine_at, plan.data(), plan.size());
  if (ours) put(blob, 28, crc32c(0, blob.data(), blob.size()), 4);
  return blob;
}

const std::string kDoublingPlan =
    "fake\nweights 4096\nscratch 512\ninput x float32 2,8\noutput y float32 2,8\nscale y x 2\n";

Bytes doubling_blob() {
  return make_blob(binding("x", "2,8", true) + "," + binding("y", "2,8", false), kDoublingPlan);
}

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

Status call(Delegate& delegate, std::vector<EValue*> values) {
  return delegate.execute(Span<EValue*>(values.data(), values.size()));
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
