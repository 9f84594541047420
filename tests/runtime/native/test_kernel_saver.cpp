// The thread that writes TensorRT-RTX's kernels, beside threads that run, load and free engines: on
// the fake TensorRT-RTX, in a build with the thread sanitizer too.
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "provider_support.h"
#include "tests.h"

using namespace trt_et;

namespace {

constexpr auto kPatience = std::chrono::seconds(60);

size_t count_files(const std::string& folder) {
  const std::filesystem::directory_iterator files(folder);
  return static_cast<size_t>(std::count_if(begin(files), end(files), [](const auto& file) {
    return file.path().filename().string()[0] != '.';
  }));
}

Bytes rtx_blob(int factor) {
  const std::string lines = "weights 64\nscale y x " + std::to_string(factor) + "\n";
  return unary_blob("2,8", lines, "", "", true);
}

// As after a disk that was full for a moment.
void test_a_write_that_failed_is_tried_again(const std::string& folder) {
  LoadOptions options;
  options.runtime_cache = folder;
  const auto kept = load(rtx_blob(2), options);
  CHECK(std::filesystem::remove_all(folder) > 0);
  std::ofstream(folder) << "in the way";
  static std::atomic<int> lines{0};
  // A log function that comes back, as it may.
  trt_et_set_log_function([](int, const char* text) {
    if (std::strstr(text, "kernel cache cannot be written") == nullptr) return;
    ++lines;
    CHECK(trt_et_save_kernels() == 0);
  });
  check_call(*kept, 1.0F, 2.0F);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (lines == 0) CHECK(std::chrono::steady_clock::now() < end);
  for (int i = 0; i < 3; ++i) CHECK(trt_et_save_kernels() == 0);
  CHECK(lines == 1);
  CHECK(std::filesystem::remove(folder));
  CHECK(trt_et_save_kernels() == 0 && count_files(folder) == 1);
  trt_et_set_log_function(nullptr);
}

}  // namespace

void test_kernel_saver() {
  char name[] = "/tmp/trt_et_kernels.XXXXXX";
  CHECK(mkdtemp(name) != nullptr);
  set_environment_variable("TRT_ET_TENSORRT_LIBRARY", TRT_ET_FAKE_RTX_LIBRARY);
  CHECK(std::filesystem::create_directories(std::string(name) + "/again"));
  test_a_write_that_failed_is_tried_again(std::string(name) + "/again");
  CHECK(std::filesystem::remove_all(std::string(name) + "/again") == 2);
  LoadOptions options;
  options.runtime_cache = name;
  {
    // Nothing but the thread writes while the engine stays loaded.
    const auto kept = load(rtx_blob(2), options);
    check_call(*kept, 1.0F, 2.0F);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (count_files(name) == 0) {
      CHECK(std::chrono::steady_clock::now() < end);
      check_call(*kept, 1.0F, 2.0F);
    }
    std::atomic<bool> done{false};
    std::thread saves([&] {
      while (!done) CHECK(trt_et_save_kernels() == 0);
    });
    std::vector<std::thread> threads;
    for (int factor = 3; factor < 6; ++factor) {
      threads.emplace_back([&, factor] {
        for (int i = 0; i < 20; ++i) {
          const auto own = load(rtx_blob(factor), options);
          check_call(*own, 1.0F, static_cast<float>(factor));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    done = true;
    saves.join();
    // Other engines are loaded meanwhile.
    const std::string gate = std::string(name) + "/.gate";
    std::ofstream(gate).flush();
    CHECK(setenv("TRT_ET_FAKE_SLOW_CACHE", gate.c_str(), 1) == 0);
    std::atomic<bool> saved{false};
    std::thread slow([&] { saved = trt_et_save_kernels() == 0; });
    while (std::filesystem::file_size(gate) == 0) std::this_thread::yield();
    (void)load(doubling_blob());
    CHECK(!saved && std::filesystem::remove(gate));
    slow.join();
    CHECK(saved && unsetenv("TRT_ET_FAKE_SLOW_CACHE") == 0);
  }
  set_environment_variable("TRT_ET_TENSORRT_LIBRARY", TRT_ET_FAKE_LIBRARY);
  CHECK(count_files(name) == 4);
  CHECK(std::filesystem::remove_all(name) == 4 + 1);
}
