// What is asked of CUDA itself (tests/support/fake_cuda.c notes it), by the numbers of its headers.
#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "check.h"
#include "common/process.h"
#include "cuda/cuda_api.h"
#include "delegate/contexts.h"
#include "tests.h"

using namespace trt_et;
using cuda::CopyKind;

namespace {

class RecordedCuda {
 public:
  RecordedCuda() {
    void* library = dlopen(TRT_ET_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != nullptr);
    calls_ = reinterpret_cast<const char* (*)()>(dlsym(library, "fake_cuda_calls"));
    set_environment_variable("TRT_ET_CUDART_LIBRARY", TRT_ET_FAKE_CUDA);
    CHECK_OK(cuda::make_real_api(&api));
    set_environment_variable("TRT_ET_CUDART_LIBRARY", nullptr);
  }
  RecordedCuda(const RecordedCuda&) = delete;
  RecordedCuda& operator=(const RecordedCuda&) = delete;
  ~RecordedCuda() { delete api; }

  // The calls since the last time, a line each.
  std::string calls() const { return calls_(); }

  cuda::Api* api = nullptr;

 private:
  const char* (*calls_)() = nullptr;
};

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  char out[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(out, sizeof out, format, arguments);
  va_end(arguments);
  return out;
}

// On the stream given, never the legacy one, and without waiting. cudaStreamDefault is 0,
// cudaStreamNonBlocking 1, cudaMemcpyDefault 4, cudaEventDisableTiming 2.
void test_work_is_queued_on_its_stream(const RecordedCuda& cuda) {
  cuda::Api& api = *cuda.api;
  void *first = nullptr, *second = nullptr, *event = nullptr;
  char from[16] = "copied", to[16] = {};
  CHECK_OK(api.create_stream(cuda::StreamKind::blocking, &first));
  CHECK_OK(api.create_stream(cuda::StreamKind::non_blocking, &second));
  CHECK(cuda.calls() == text("stream %p, flags 0\nstream %p, flags 1\n", first, second));
  for (const CopyKind kind :
       {CopyKind::host_to_device, CopyKind::device_to_host, CopyKind::device_to_device}) {
    CHECK_OK(api.copy(to, from, 7, kind, first));
    CHECK(cuda.calls() == text("copy 7 bytes, kind 4, on %p\n", first));
  }
  CHECK(std::string(to) == "copied");
  CHECK_OK(api.copy_peer(to, 1, from, 0, 5, first));
  CHECK_OK(api.zero(to, 3, first));
  CHECK(cuda.calls() ==
        text("copy 5 bytes from 0 to 1 on %p\nset 3 bytes to 0 on %p\n", first, first));
  CHECK(to[2] == 0 && to[3] == 'i');
  CHECK_OK(api.create_event(&event));
  CHECK_OK(api.record_event(event, first));
  CHECK_OK(api.wait_event(second, event));
  CHECK(cuda.calls() == text("event %p, flags 2\nrecord %p on %p\n%p waits for %p, flags 0\n",
                             event, event, first, second, event));
  CHECK_OK(api.synchronize_stream(first));
  CHECK_OK(api.synchronize_event(event));
  CHECK_OK(api.destroy_event(event));
  for (void* stream : {first, second}) CHECK_OK(api.destroy_stream(stream));
  CHECK(cuda.calls() == text("wait for stream %p\nwait for event %p\ndestroy event %p\n"
                             "destroy stream %p\ndestroy stream %p\n",
                             first, event, event, first, second));
}

// On a non-blocking stream of its own; cudaStreamCaptureModeThreadLocal is 1.
void test_captures_are_of_one_thread(const RecordedCuda& cuda) {
  char stream = 0;
  void* captured = nullptr;
  {
    GraphReplay replay(
        *cuda.api, true, [](void*) { return Status{}; },
        [&](void* on) { return captured = on, Status{}; });
    for (int i = 0; i < 2; ++i) CHECK_OK(replay.run(&stream, true));
  }
  CHECK(cuda.calls() == text("stream %p, flags 1\nbegin capture of %p, mode 1\nend capture of %p\n"
                             "instantiate, flags 0\ndestroy graph\ndestroy stream %p\n"
                             "launch on %p\ndestroy executable\n",
                             captured, captured, captured, captured, &stream));
}

}  // namespace

void test_real_cuda(const std::string&) {
  const RecordedCuda cuda;
  test_work_is_queued_on_its_stream(cuda);
  test_captures_are_of_one_thread(cuda);
}
