// The metadata "network" of a blob: what is kept of it, and what is refused.
#include "blob/blob.h"
#include "check.h"
#include "tests.h"

using namespace trt_et;

namespace {

Status parse(const std::string& network, Metadata* metadata, const char* builder = "onnx") {
  const std::string text =
      "{\"io_bindings\":[{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[-1,8],\"is_input\":true,"
      "\"min_shape\":[1,8],\"opt_shape\":[2,8],\"max_shape\":[4,8]},"
      "{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[8],\"is_input\":false}],"
      "\"device_id\":0,\"builder\":\"" +
      std::string(builder) + "\",\"network\":" + network + "}";
  return parse_metadata(text.data(), text.size(), metadata);
}

void check_refused(const std::string& network, const char* reason) {
  Metadata metadata;
  const Status status = parse(network, &metadata);
  CHECK_FAILS(status, reason);
  CHECK(status.error == Error::InvalidProgram);
}

}  // namespace

void test_network_blob(const std::string&) {
  Metadata metadata;
  const std::string full =
      "{\"profiles\":[{\"x\":[[1,8],[1,8],[1,8]]},{}],\"strongly_typed\":true,"
      "\"weight_streaming\":false,\"weights\":[\"trt_et_onnx_0a\",\"trt_et_onnx_1b\"],"
      "\"workspace_size\":1024}";
  CHECK_OK(parse(full, &metadata));
  CHECK(metadata.network == full);
  CHECK((metadata.weights == std::vector<std::string>{"trt_et_onnx_0a", "trt_et_onnx_1b"}));
  metadata = {};
  CHECK_OK(parse("{\"later\":[1]}", &metadata));
  CHECK(metadata.weights.empty());

  metadata = {};
  CHECK_FAILS(parse(full, &metadata, "tensorrt"), "has a network, but the builder 'tensorrt'");
  // The table of tests/support/blobs/vectors.py has all that is refused, in both languages.
  check_refused("{\"weights\":[\"../a\"]}", "weights has no usable name");
  check_refused("{\"profiles\":[{\"z\":[[8],[8],[8]]}]}", "profiles names no input: z");
}
