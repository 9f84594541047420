// Native tests of the run time: what Python cannot reach. Built with -DTRT_ET_BUILD_TESTS=ON;
// the argument is a file that make_blob.py wrote.
#include <executorch/runtime/platform/runtime.h>

#include <cstdio>
#include <string>

#include "check.h"
#include "reference/reference_provider.h"
#include "tests.h"

// A program's static objects free engines after the main thread's own objects are gone.
static struct LateCaller {
  void fail_to_load() const {
    const trt_et_engine_provider& provider = trt_et::reference_provider();
    const char bytes[16] = "not a program";
    trt_et_engine_request request{};
    request.bytes = bytes;
    request.size = sizeof bytes;
    void* engine = nullptr;
    CHECK(provider.load(&request, &engine) != 0);
    CHECK(std::string(provider.last_error()).find("nested program") != std::string::npos);
  }
  ~LateCaller() { fail_to_load(); }
} g_late_caller;

int main(int argc, char** argv) {
  executorch::runtime::runtime_init();
  g_late_caller.fail_to_load();
  test_crc32c();
  test_blob_fuzz();
  test_simulator();
  test_tensorrt_provider();
  test_streams();
  if (argc > 1) test_delegate(argv[1]);
  if (argc > 1) test_reference_state((std::string(argv[1]) + "_state").c_str());
  test_beside_cuda_backend();
  std::printf("native tests passed%s\n", argc > 1 ? "" : " (no blob given: delegate not tested)");
  return 0;
}
