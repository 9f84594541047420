// Native tests of the run time: what Python cannot reach. Built with -DTRT_ET_BUILD_TESTS=ON;
// the argument is a file that make_blob.py wrote.
#include <executorch/runtime/platform/runtime.h>

#include <cstdio>
#include <string>

#include "tests.h"

int main(int argc, char** argv) {
  executorch::runtime::runtime_init();
  test_crc32c();
  test_blob_fuzz();
  test_simulator();
  test_tensorrt_leaf();
  if (argc > 1) test_delegate(argv[1]);
  if (argc > 1) test_reference_state((std::string(argv[1]) + "_state").c_str());
  std::printf("native tests passed%s\n", argc > 1 ? "" : " (no blob given: delegate not tested)");
  return 0;
}
