// Native tests of the run time: what Python cannot reach. Built with -DTRT_ET_BUILD_TESTS=ON;
// the first argument is a file that make_blob.py wrote, the others name tests (none: all of them).
#include <executorch/runtime/platform/runtime.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "check.h"
#include "host_engine.h"
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

namespace {

struct Test {
  const char* name;
  bool on_gpus;
  bool is_setup;  // for all others on GPUs
  void (*run)(const std::string& blob_file);
};

// In this order.
constexpr Test kTests[] = {
    {"crc32c", false, false, test_crc32c},
    {"blob_fuzz", false, false, test_blob_fuzz},
    {"blob_edits", false, false, test_blob_edits},
    {"network_blob", false, false, test_network_blob},
    {"batched_nms", false, false, [](const std::string&) { test_batched_nms(); }},
    {"real_cuda", false, false, test_real_cuda},
    // Starts this program again, where it is the only test.
    {"fresh_process", false, false, test_fresh_process},
    // Likewise.
    {"cuda_rules", false, false, test_cuda_rules},
    {"simulator", true, true, test_simulator},
    {"tensorrt_provider", true, true, test_tensorrt_provider},
    {"streams", true, false, test_streams},
    {"networks", true, false, test_networks},
    {"bad_calls", true, false, test_bad_calls},
    {"many_faults", true, false, test_many_faults},
    {"long_runs", true, false, test_long_runs},
    {"onnx_provider", true, false, test_onnx_provider},
    {"many_threads", true, false, test_many_threads},
    {"delegate", true, false, test_delegate},
    // Once that backend is registered, it is for the whole process.
    {"beside_cuda_backend", true, false, test_beside_cuda_backend},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s BLOB [TEST ...]\n", argv[0]);
    return 1;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // What a crash leaves is read, too.
  const std::vector<std::string> wanted(argv + 2, argv + argc);
  executorch::runtime::runtime_init();
  g_late_caller.fail_to_load();
  const auto chosen = [&](const Test& test) {
    return wanted.empty() || std::count(wanted.begin(), wanted.end(), test.name) > 0;
  };
  const bool on_gpus = std::any_of(std::begin(kTests), std::end(kTests),
                                   [&](const Test& test) { return chosen(test) && test.on_gpus; });
  for (const Test& test : kTests) {
    if (chosen(test) || (on_gpus && test.is_setup)) test.run(argv[1]);
  }
  std::printf("native tests passed\n");
  return 0;
}
