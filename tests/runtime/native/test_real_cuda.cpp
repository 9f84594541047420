// What is asked of CUDA itself (tests/support/fake_cuda.c notes it), by the numbers of its headers.
#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "check.h"
#include "cuda/cuda_api.h"
#include "delegate/graph_replay.h"
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
    CHECK(setenv("TRT_ET_CUDART_LIBRARY", TRT_ET_FAKE_CUDA, 1) == 0);
    CHECK_OK(cuda::make_real_api(&api));
    CHECK(unsetenv("TRT_ET_CUDART_LIBRARY") == 0);
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

// cudaStreamDefault is 0, cudaStreamNonBlocking 1.
void test_kinds_of_streams(const RecordedCuda& cuda) {
  void *blocking = nullptr, *other = nullptr;
  CHECK_OK(cuda.api->create_stream(cuda::StreamKind::blocking, &blocking));
  CHECK(cuda.calls() == text("stream %p, flags 0\n", blocking));
  CHECK_OK(cuda.api->create_stream(cuda::StreamKind::non_blocking, &other));
  CHECK(cuda.calls() == text("stream %p, flags 1\n", other));
  for (void* stream : {blocking, other}) CHECK_OK(cuda.api->destroy_stream(stream));
  CHECK(cuda.calls() == text("destroy stream %p\ndestroy stream %p\n", blocking, other));
}

// Asynchronously on the stream given, never the legacy one; cudaMemcpyDefault is 4.
void test_copies_are_queued(const RecordedCuda& cuda) {
  void* stream = nullptr;
  CHECK_OK(cuda.api->create_stream(cuda::StreamKind::blocking, &stream));
  (void)cuda.calls();
  char from[16] = "copied", to[16] = {};
  for (const CopyKind kind :
       {CopyKind::host_to_device, CopyKind::device_to_host, CopyKind::device_to_device}) {
    CHECK_OK(cuda.api->copy(to, from, 7, kind, stream));
    CHECK(cuda.calls() == text("copy 7 bytes, kind 4, on %p\n", stream));
  }
  CHECK(std::string(to) == "copied");
  CHECK_OK(cuda.api->copy_peer(to, 1, from, 0, 5, stream));
  CHECK_OK(cuda.api->zero(to, 3, stream));
  CHECK_OK(cuda.api->synchronize_stream(stream));
  CHECK(cuda.calls() == text("copy 5 bytes from 0 to 1 on %p\nset 3 bytes to 0 on %p\n"
                             "wait for stream %p\n",
                             stream, stream, stream));
  CHECK(to[2] == 0 && to[3] == 'i');
  CHECK_OK(cuda.api->destroy_stream(stream));
  (void)cuda.calls();
}

// cudaEventDisableTiming is 2.
void test_events_take_no_times(const RecordedCuda& cuda) {
  void* streams[2] = {};
  void* event = nullptr;
  for (void*& stream : streams) {
    CHECK_OK(cuda.api->create_stream(cuda::StreamKind::blocking, &stream));
  }
  (void)cuda.calls();
  CHECK_OK(cuda.api->create_event(&event));
  CHECK_OK(cuda.api->record_event(event, streams[0]));
  CHECK_OK(cuda.api->wait_event(streams[1], event));
  CHECK_OK(cuda.api->synchronize_event(event));
  CHECK_OK(cuda.api->destroy_event(event));
  CHECK(cuda.calls() == text("event %p, flags 2\nrecord %p on %p\n%p waits for %p, flags 0\n"
                             "wait for event %p\ndestroy event %p\n",
                             event, event, streams[0], streams[1], event, event, event));
  for (void* stream : streams) CHECK_OK(cuda.api->destroy_stream(stream));
  (void)cuda.calls();
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
  test_kinds_of_streams(cuda);
  test_copies_are_queued(cuda);
  test_events_take_no_times(cuda);
  test_captures_are_of_one_thread(cuda);
}
