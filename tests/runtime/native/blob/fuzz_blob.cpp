// libFuzzer on the blob reader (make fuzz-blob): every input as it is, and with a right checksum;
// and on the reader of ONNX models.
#include "parse_exactly.h"
#include "tensorrt/build/onnx_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes blob(data, data + size);
  parse_exactly(blob);
  seal(blob);
  parse_exactly(blob);
  std::vector<trt_et::tensorrt::ExternalInitializer> found;
  (void)trt_et::tensorrt::find_external_initializers(data, size, &found);
  return 0;
}
