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
  check_refused("[]", "network: is not an object");
  check_refused("{\"weights\":\"a\"}", "weights is not a list");
  check_refused("{\"weights\":[1]}", "weights has no usable name");
  // A name may become a file's.
  for (const char* name : {"", ".", "../a", "a/b", "/a", "a b"}) {
    check_refused("{\"weights\":[\"" + std::string(name) + "\"]}", "weights has no usable name");
  }
  check_refused("{\"weights\":[\"" + std::string(201, 'a') + "\"]}", "no usable name");
  check_refused("{\"weights\":[\"b\",\"a\"]}", "weights is not sorted");
  check_refused("{\"weights\":[\"a\",\"a\"]}", "weights is not sorted");
  check_refused("{\"workspace_size\":-1}", "workspace_size is no number >= 0");
  check_refused("{\"optimization_level\":\"3\"}", "optimization_level is no number >= 0");
  check_refused("{\"weight_streaming\":1}", "weight_streaming is not a boolean");
  check_refused("{\"profiles\":{}}", "profiles is not a list");
  check_refused("{\"profiles\":[[]]}", "profiles has no objects");
  check_refused("{\"profiles\":[{\"y\":[[8],[8],[8]]}]}", "profiles names no input: y");
  check_refused("{\"profiles\":[{\"z\":[[8],[8],[8]]}]}", "profiles names no input: z");
  for (const char* range :
       {"1", "[[1,8],[1,8]]", "[[1],[1],[1]]", "[[2,8],[1,8],[4,8]]", "[[1,8],[5,8],[4,8]]",
        "[[1,7],[1,7],[1,7]]", "[[1,8],[1,8],[1.5,8]]", "[[-1,8],[1,8],[4,8]]"}) {
    check_refused("{\"profiles\":[{\"x\":" + std::string(range) + "}]}",
                  "profiles has an impossible range of x");
  }
}
