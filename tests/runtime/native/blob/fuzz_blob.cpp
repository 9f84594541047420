// libFuzzer on the blob reader (make fuzz-blob): every input as it is, and with a right checksum.
#include "parse_exactly.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes blob(data, data + size);
  parse_exactly(blob);
  seal(blob);
  parse_exactly(blob);
  return 0;
}
