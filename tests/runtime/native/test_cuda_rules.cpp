// The plugin on a fake driver that keeps CUDA's rules (tests/support/fake_cuda.c). Each part is a
// process of its own: what CUDA makes for a process stays, and its end is one of the parts.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "backend_calls.h"
#include "cuda/device_allocator.h"
#include "tests.h"

using namespace trt_et;
using executorch::runtime::etensor::DeviceType;

namespace executorch::extension::cuda {
extern thread_local std::optional<void*> t_caller_stream;
}

namespace {

constexpr const char* kPart = "TRT_ET_TEST_CUDA_RULES";

void* driver() {
  static void* library = dlopen(TRT_ET_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr);
  return library;
}

template <typename F>
F* function(const char* name) {
  auto* found = reinterpret_cast<F*>(dlsym(driver(), name));
  CHECK(found != nullptr);
  return found;
}

// What the driver counted.
uint64_t driver_count(const char* what) {
  return function<uint64_t(const char*)>("fake_cuda")(what);
}

// Reachable until the end of the process, and so no leak.
void* keep(void* made) {
  static auto* all = new std::vector<void*>;
  all->push_back(made);
  return made;
}

// What a program does with CUDA itself.
void* allocate(const char* with = "cudaMalloc") {
  void* memory = nullptr;
  CHECK(function<int(void**, size_t, unsigned)>(with)(&memory, 512, 1) == 0);
  std::memset(memory, 0, 512);
  return keep(memory);
}

void* make_stream() {
  void* stream = nullptr;
  CHECK(function<int(void**, unsigned)>("cudaStreamCreateWithFlags")(&stream, 1) == 0);
  return keep(stream);
}

void begin_capture(void* stream) {
  CHECK(function<int(void*, int)>("cudaStreamBeginCapture")(stream, 1) == 0);
}

int end_capture(void* stream) {
  void* graph = nullptr;
  return function<int(void*, void**)>("cudaStreamEndCapture")(stream, &graph);
}

struct OnDriver {
  explicit OnDriver(const Bytes& blob = scale_blob("8")) {
    CHECK(delegate.init(blob) == Error::Ok);
  }
  Error run(void* in, void* out) const {
    OwnedTensor x({8}, in), y({8}, out);
    return delegate.execute({&x.value, &y.value});
  }
  BackendDelegate delegate;
};

bool says(const char* text) { return std::strstr(trt_et_last_error(), text) != nullptr; }

void test_only_the_engines_gpu_gets_a_context() {
  set_environment_variable("TRT_ET_DEVICE", "1");
  const OnDriver scale;
  float in[8] = {1, 2, 3}, out[8] = {};
  for (int i = 0; i < 4; ++i) CHECK(scale.run(in, out) == Error::Ok);
  CHECK(out[2] == 6.0F);
  auto memory = cuda_allocator().allocate(64, 1, 16);
  CHECK(memory.ok());
  CHECK(cuda_allocator().copy_host_to_device(*memory, in, 32, 1) == Error::Ok);
  CHECK(cuda_allocator().copy_device_to_host(out, *memory, 32, 1) == Error::Ok);
  cuda_allocator().deallocate(*memory, 1);
  CHECK(driver_count("primary:1") == 1 && driver_count("primary:0") == 0);
  CHECK(driver_count("depth") == 0);  // The thread has no context, as before.
}

void test_a_context_of_the_callers_own_stays_current() {
  void *own = nullptr, *found = nullptr;
  CHECK(function<int(void**, unsigned, int)>("cuCtxCreate_v2")(&own, 0, 0) == 0);
  keep(own);
  {
    const OnDriver scale;
    float in[8] = {5}, out[8] = {};
    CHECK(scale.run(in, out) == Error::Ok);
    // Another thread has no context, and uses the same engine.
    std::thread([&] { CHECK(scale.run(in, out) == Error::Ok && out[0] == 10.0F); }).join();
    void* const theirs = make_stream();
    CHECK(trt_et_use_stream(0, theirs) == -1 && says("a CUDA context of its own on cuda:0"));
  }
  CHECK(function<int(void**)>("cuCtxGetCurrent")(&found) == 0);
  CHECK(found == own && driver_count("depth") == 1);
}

// The host reads managed memory as soon as the call returns.
void test_managed_memory_is_waited_for() {
  const OnDriver scale;
  auto* in = static_cast<float*>(allocate("cudaMallocManaged"));
  auto* out = static_cast<float*>(allocate("cudaMallocManaged"));
  const auto waits_of_a_call = [&](void* from, void* to) {
    const uint64_t before = driver_count("waits");
    CHECK(scale.run(from, to) == Error::Ok);
    return driver_count("waits") - before;
  };
  void *memory = allocate(), *result = allocate();
  CHECK(waits_of_a_call(in, out) == 1);
  CHECK(waits_of_a_call(memory, out) == 1 && waits_of_a_call(in, result) == 1);
  CHECK(waits_of_a_call(memory, result) == 0);
}

void test_a_guards_stream_of_another_gpu_than_the_first_is_used() {
  set_environment_variable("TRT_ET_DEVICE", "1");
  const OnDriver scale;
  CHECK(function<int(int)>("cudaSetDevice")(1) == 0);
  void *in = allocate(), *out = allocate(), *stream = make_stream();
  executorch::extension::cuda::t_caller_stream = stream;
  CHECK(scale.run(in, out) == Error::Ok);
  CHECK(driver_count("last_recorded") == reinterpret_cast<uintptr_t>(stream));
  executorch::extension::cuda::t_caller_stream = std::nullopt;
  // The same from a program that links ExecuTorch's CUDA extension statically.
  static void* given = make_stream();
  trt_et_set_caller_stream_source([](void** found) { return *found = given, 1; });
  CHECK(scale.run(in, out) == Error::Ok);
  CHECK(driver_count("last_recorded") == reinterpret_cast<uintptr_t>(given));
  trt_et_set_caller_stream_source(nullptr);
  CHECK(scale.run(in, out) == Error::Ok);
  CHECK(driver_count("last_recorded") != reinterpret_cast<uintptr_t>(given));
  CHECK(trt_et_use_stream(0, stream) == -1 && says("the stream for cuda:0 is one of cuda:1"));
  CHECK(trt_et_use_stream(1, stream) == 0 && trt_et_use_stream(1, nullptr) == 0);
}

// Of a green context, which has some of the GPU's multiprocessors.
void test_streams_of_green_contexts_are_used() {
  const OnDriver scale;
  const auto make = function<void*(int)>("fake_cuda_green_stream");
  void *in = allocate(), *out = allocate();
  void *stream = keep(make(0)), *other = keep(make(1));
  executorch::extension::cuda::t_caller_stream = stream;
  CHECK(scale.run(in, out) == Error::Ok);
  CHECK(driver_count("last_recorded") == reinterpret_cast<uintptr_t>(stream));
  executorch::extension::cuda::t_caller_stream = other;  // Of another GPU.
  CHECK(scale.run(in, out) == Error::Ok);
  CHECK(driver_count("last_recorded") != reinterpret_cast<uintptr_t>(other));
  executorch::extension::cuda::t_caller_stream = std::nullopt;
  CHECK(trt_et_use_stream(0, other) == -1 && says("the stream for cuda:0 is one of cuda:1"));
  CHECK(trt_et_use_stream(0, stream) == 0 && scale.run(in, out) == Error::Ok);
  CHECK(driver_count("last_recorded") == reinterpret_cast<uintptr_t>(stream));
  CHECK(trt_et_use_stream(0, nullptr) == 0);
}

// A graph that was captured elsewhere would run on multiprocessors that the caller has not given.
void test_graphs_stay_in_the_callers_green_context() {
  const OnDriver scale;
  const auto described = [] {
    char text[1000];
    (void)trt_et_describe_engines(text, sizeof text);
    return std::string(text);
  };
  const auto launches_of_six = [&](void* in, void* out) {
    const uint64_t before = driver_count("graph_launches");
    for (int i = 0; i < 6; ++i) CHECK(scale.run(in, out) == Error::Ok);
    return driver_count("graph_launches") - before;
  };
  void *in = allocate(), *out = allocate(),
       *green = keep(function<void*(int)>("fake_cuda_green_stream")(0));
  CHECK(trt_et_use_stream(0, green) == 0);
  CHECK(launches_of_six(in, out) == 0);
  CHECK(described().find("green context") != std::string::npos);
  CHECK(trt_et_use_stream(0, nullptr) == 0);
  CHECK(launches_of_six(in, out) > 0);  // Of the primary context, on our own stream.
  CHECK(described().find("green context") == std::string::npos);
  executorch::extension::cuda::t_caller_stream = green;
  CHECK(launches_of_six(in, out) == 0);  // Nor is the graph that there is.
  // A capture of the caller's is on the caller's stream.
  begin_capture(green);
  CHECK(scale.run(in, out) == Error::NotSupported || scale.run(in, out) == Error::Ok);
  CHECK(end_capture(green) == 0);
  executorch::extension::cuda::t_caller_stream = std::nullopt;
  CHECK(launches_of_six(in, out) > 0);
  CHECK(driver_count("graphs_outside") == 0);
}

// ExecuTorch copies a method's host inputs by its operators, which call the allocator.
void test_copies_leave_a_capture_as_it_is() {
  void* stream = nullptr;
  float host[16] = {};
  auto& allocator = cuda_allocator();
  const auto planned = allocator.allocate(64, 0, 16);
  CHECK(planned.ok() && trt_et_get_stream(0, &stream) == 0);
  begin_capture(stream);
  constexpr const char* kRefusal = "the stream is captured, and a copy or an allocation waits";
  CHECK(allocator.copy_host_to_device(*planned, host, 64, 0) == Error::NotSupported &&
        says(kRefusal));
  CHECK(allocator.copy_device_to_host(host, *planned, 64, 0) == Error::NotSupported);
  CHECK(allocator.allocate(64, 0, 16).error() == Error::NotSupported);
  CHECK(trt_et_wait(0) == -1 && says("the stream is captured") && trt_et_wait(-1) == -1);
  CHECK(end_capture(stream) == 0);
  CHECK(allocator.copy_host_to_device(*planned, host, 64, 0) == Error::Ok && trt_et_wait(0) == 0);
  allocator.deallocate(*planned, 0);
}

// A run in the caller's graph, or a refusal that leaves the capture and the method as they were.
void test_captures_of_the_caller() {
  const OnDriver scale;
  void *in = allocate(), *out = allocate(), *other = allocate(), *stream = make_stream();
  float host[8] = {};
  CHECK(scale.run(in, out) == Error::Ok);  // On our own stream.
  CHECK(trt_et_use_stream(0, stream) == 0);
  const auto refused = [&](void* to, const char* why) {
    begin_capture(stream);
    CHECK(scale.run(in, to) == Error::NotSupported && says(why));
    CHECK(end_capture(stream) == 0);
  };
  refused(out, "the last run was on another");
  for (int i = 0; i < 2; ++i) CHECK(scale.run(in, out) == Error::Ok);
  refused(other, "is at another address than before");
  refused(host, "is not on cuda:0");
  begin_capture(stream);
  CHECK(scale.run(in, out) == Error::Ok);
  CHECK(end_capture(stream) == 0);
  // What the graph holds stays as it is: other addresses get another context.
  for (int i = 0; i < 6; ++i) CHECK(scale.run(in, i % 2 == 0 ? other : out) == Error::Ok);
  CHECK(scale.run(in, host) == Error::Ok);
  CHECK(trt_et_use_stream(0, nullptr) == 0);
  CHECK(scale.run(in, other) == Error::Ok);
  // Our own stream, too, once the caller knows it.
  void* own = nullptr;
  CHECK(trt_et_get_stream(0, &own) == 0 && own != nullptr && own != stream);
  begin_capture(own);
  CHECK(scale.run(in, other) == Error::Ok);
  CHECK(end_capture(own) == 0);
}

void test_order_with_the_callers_own_work() {
  const OnDriver scale;
  void *in = allocate(), *out = allocate(), *stream = nullptr, *event = nullptr;
  CHECK(scale.run(in, out) == Error::Ok);
  CHECK(trt_et_get_stream(0, &stream) == 0);
  CHECK(driver_count("last_recorded") == reinterpret_cast<uintptr_t>(stream));
  CHECK(function<int(int)>("cudaSetDevice")(0) == 0);
  CHECK(function<int(void**, unsigned)>("cudaEventCreateWithFlags")(&event, 2) == 0);
  keep(event);
  CHECK(trt_et_record(0, event) == 0);
  const uint64_t waits = driver_count("waits");
  CHECK(trt_et_wait(0) == 0 && driver_count("waits") == waits + 1);
  CHECK(trt_et_wait(-1) == 0 && driver_count("waits") == waits + 2);
  CHECK(driver_count("primary:1") == 0);
  for (const int device : {-2, 2}) {
    CHECK(trt_et_wait(device) == -1 && says("this machine has 2 GPU(s)"));
    CHECK(trt_et_get_stream(device, &stream) == -1 && trt_et_record(device, event) == -1);
  }
  CHECK(trt_et_get_stream(0, nullptr) == -1 && trt_et_record(0, nullptr) == -1);
}

// Buffers in turn, as a camera fills them: the host waits for none.
void test_buffers_in_turn_are_not_waited_for() {
  for (const size_t count : {1, 4, 6, 16}) {
    const OnDriver scale;
    void* in[16];
    void* const out = allocate();
    for (void*& buffer : in) buffer = allocate();
    const uint64_t before = driver_count("waits");
    for (size_t i = 0; i < 600; ++i) CHECK(scale.run(in[i % count], out) == Error::Ok);
    CHECK(driver_count("waits") == before);
  }
}

void test_failures_have_codes() {
  const OnDriver scale;
  float in[8] = {}, out[8] = {};
  const auto fail = function<void(const char*)>("fake_cuda_fail");
  const auto fail_with = [&](int code) {
    static std::string calls;
    calls = "cudaMemcpyAsync=" + std::to_string(code);
    fail(calls.c_str());
  };
  fail_with(2);
  CHECK(scale.run(in, out) == Error::MemoryAllocationFailed && says("out of memory"));
  fail_with(700);
  CHECK(scale.run(in, out) == Error::AccessFailed);
  CHECK(says("illegal memory access was encountered (700); the GPU is lost to this process"));
  fail_with(1);
  CHECK(scale.run(in, out) == Error::Internal);
  // 46 is cudaErrorDevicesUnavailable, "at the current time"; of the others, CUDA's header says
  // that the process must be relaunched.
  fail_with(46);
  CHECK(scale.run(in, out) == Error::Internal && !says("is lost"));
  for (const int code :
       {214, 220, 226, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911}) {
    fail_with(code);
    CHECK(scale.run(in, out) == Error::AccessFailed && says("the GPU is lost to this process"));
  }
  fail("");
  CHECK(scale.run(in, out) == Error::Ok);
}

// Of a load, runs with tensors on the host and on the GPU, and the allocator: a failure has its
// code, whatever failed because of it, and afterwards everything works. The second list: what
// frees, or has another way.
void test_each_call_that_fails_has_its_code() {
  constexpr const char* kTold[] = {"cuCtxGetCurrent",          "cuCtxPushCurrent_v2",
                                   "cudaDeviceGetAttribute",   "cudaMalloc",
                                   "cudaPointerGetAttributes", "cudaMemcpyAsync",
                                   "cudaMemsetAsync",          "cudaStreamCreateWithFlags",
                                   "cudaStreamSynchronize",    "cudaEventCreateWithFlags",
                                   "cudaEventRecord",          "cudaStreamWaitEvent",
                                   "cudaGraphLaunch",          "all"};
  constexpr const char* kOthers[] = {"cudaMemGetInfo",       "cudaFree",
                                     "cudaStreamDestroy",    "cudaEventDestroy",
                                     "cuCtxPopCurrent_v2",   "cudaStreamBeginCapture",
                                     "cudaStreamEndCapture", "cudaGraphInstantiateWithFlags",
                                     "cudaGraphDestroy",     "cudaGraphExecDestroy",
                                     "cudaEventSynchronize"};
  const auto fail = function<void(const char*)>("fake_cuda_fail");
  const Bytes blob = scale_blob("8");
  const auto try_all = [&](const std::string& call, int code, bool is_told) {
    const OnDriver scale;
    float in[8] = {1, 2, 3}, out[8] = {};
    void *x = allocate(), *y = allocate();
    for (int i = 0; i < 5; ++i) CHECK(scale.run(x, y) == Error::Ok);
    auto memory = cuda_allocator().allocate(32, 0, 16);
    CHECK(memory.ok());
    int failures = 0;
    const auto check = [&](Error error) {
      CHECK(function<int()>("cudaGetLastError")() ==
            0);  // The program's next call gets no failure.
      if (error == Error::Ok) return;
      ++failures;
      const bool lost = code != 46;
      if (says("is lost") == lost && error == (lost ? Error::AccessFailed : Error::Internal))
        return;
      std::printf("%s fails with %d: error 0x%x, %s\n", call.c_str(), code,
                  static_cast<unsigned>(error), trt_et_last_error());
      CHECK(false);
    };
    const std::string calls = call + "=" + std::to_string(code);
    fail(calls.c_str());
    {
      BackendDelegate other;
      check(other.init(blob));
      check(scale.run(x, y));
      std::thread([&] { check(scale.run(in, out)); }).join();  // On a stream of its own.
      check(scale.run(in, out));
      check(cuda_allocator().allocate(64, 0, 16).error());
      check(cuda_allocator().copy_host_to_device(*memory, in, 32, 0));
      check(cuda_allocator().copy_device_to_host(out, *memory, 32, 0));
      cuda_allocator().deallocate(*memory, 0);
    }
    fail("");
    if (is_told && failures == 0) std::printf("nobody is told that %s failed\n", call.c_str());
    CHECK(!is_told || failures > 0);
    CHECK(scale.run(in, out) == Error::Ok && out[2] == 6.0F);
  };
  for (const int code : {46, 226, 721, 810, 911}) {
    for (const char* call : kTold) try_all(call, code, true);
    for (const char* call : kOthers) try_all(call, code, false);
  }
}

// What fails first may be the least of it.
void test_a_lost_gpu_is_told_whatever_fails_first() {
  const OnDriver scale;
  float in[8] = {}, out[8] = {};
  const auto fail = function<void(const char*)>("fake_cuda_fail");
  fail("cudaMemcpyAsync=1 cudaStreamSynchronize=719");
  CHECK(scale.run(in, out) == Error::AccessFailed && says("(719); the GPU is lost"));
  // TensorRT then says of any engine that it cannot be deserialized.
  fail("cudaMemGetInfo=719");
  BackendDelegate other;
  const Bytes refused = plan_blob(kDoublingPlan + "linear\n");
  CHECK(other.init(refused) == Error::AccessFailed && says("(719); the GPU is lost"));
  fail("");
  CHECK(other.init(refused) == Error::DelegateInvalidCompatibility);
  CHECK(scale.run(in, out) == Error::Ok);
}

// A program's static object is destroyed after the driver and TensorRT have gone.
struct Late {
  OnDriver* scale = nullptr;
  ~Late() {
    if (scale == nullptr) return;
    delete scale;
    CHECK(driver_count("calls_after_end") == 0);
    std::puts("the end of the process is clean");
  }
} g_late;

void test_the_end_of_the_process() {
  g_late.scale = new OnDriver;
  CHECK(g_late.scale->run(allocate(), allocate()) == Error::Ok);
}

// The exit status of a child that does this; it fails if it takes long.
template <typename F>
int status_of_child(F&& function) {
  const pid_t child = fork();
  if (child == 0) {
    (void)alarm(60);
    function();
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

constexpr const char* kForked = "CUDA was in use when this process was forked";

void test_a_forked_process_says_so() {
  const OnDriver scale;
  const int status = status_of_child([&] {
    BackendDelegate delegate;
    float in[8] = {}, out[8] = {};
    void* stream = nullptr;
    CHECK(delegate.init(scale_blob("8")) == Error::InvalidState && says(kForked));
    CHECK(scale.run(in, out) == Error::InvalidState && says(kForked));
    CHECK(!backend().is_available() && says(kForked) && !says("simulated"));
    CHECK(trt_et_device_count() == -1 && says(kForked));
    CHECK(trt_et_get_stream(0, &stream) == -1 && says(kForked));
    CHECK(trt_et_save_kernels() == -1 && says(kForked));
    CHECK(trt_et_choose_cuda("simulated") == -1 && says(kForked));
    CHECK(!cuda_allocator().allocate(16, 0, 16).ok() && says(kForked) && !says("simulated"));
    std::_Exit(7);
  });
  CHECK(status == 7);
}

// Nothing of CUDA or TensorRT, also when the child drops what it inherited, and ends as a program
// does, with threads and static objects.
struct AfterTheFork {
  uint64_t calls = 0;
  ~AfterTheFork() {
    if (calls != 0 && driver_count("calls") != calls) std::_Exit(3);
  }
} g_after_the_fork;

void test_a_forked_process_leaves_what_it_inherited() {
  auto* scale = new OnDriver;
  float in[8] = {}, out[8] = {};
  CHECK(scale->run(in, out) == Error::Ok);
  auto memory = cuda_allocator().allocate(64, 0, 16);
  CHECK(memory.ok());
  const uint64_t engines = counter("engines");
  const int status = status_of_child([&] {
    g_after_the_fork.calls = driver_count("calls");
    delete scale;
    cuda_allocator().deallocate(*memory, 0);
    std::thread([] { CHECK(!backend().is_available()); }).join();
    CHECK(counter("engines") == engines && driver_count("calls") == g_after_the_fork.calls);
    std::exit(0);
  });
  CHECK(status == 0);
  CHECK(scale->run(in, out) == Error::Ok);  // The parent's is as it was.
  cuda_allocator().deallocate(*memory, 0);
  delete scale;
}

// The thread that chooses between real and simulated GPUs holds a lock.
void test_a_fork_during_the_first_use() {
  CHECK(setenv("FAKE_CUDA_SLOW", "1", 1) == 0);
  std::thread first([] { CHECK(trt_et_device_count() == 2); });
  while (driver_count("starting") == 0) std::this_thread::yield();
  const int status = status_of_child([] {
    CHECK(trt_et_device_count() == -1 && says(kForked));
    CHECK(trt_et_choose_cuda("simulated") == -1 && says(kForked));
    std::_Exit(7);
  });
  first.join();
  CHECK(status == 7);
}

// Locks that a thread of the parent's held at that moment stay held in the child.
void test_forks_beside_running_threads() {
  const OnDriver scale;
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      float in[8] = {}, out[8] = {};
      char text[512];
      while (!done) {
        const OnDriver own;
        CHECK(own.run(in, out) == Error::Ok && scale.run(in, out) == Error::Ok);
        (void)trt_et_describe_engines(text, sizeof text);
      }
    });
  }
  for (int i = 0; i < 40; ++i) {
    const int status = status_of_child([&] {
      float in[8] = {}, out[8] = {};
      char text[512];
      BackendDelegate delegate;
      CHECK(scale.run(in, out) == Error::InvalidState);
      CHECK(delegate.init(scale_blob("8")) == Error::InvalidState);
      CHECK(trt_et_describe_engines(text, sizeof text) == 2 && trt_et_status(text, 512) > 0);
      std::_Exit(0);  // What other threads had on their stacks would count as leaked.
    });
    CHECK(status == 0);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
}

void test_tensorrt_rtx_is_refused_where_it_has_no_target() {
  set_environment_variable("TRT_ET_TENSORRT_LIBRARY", TRT_ET_FAKE_RTX_LIBRARY);
  const Bytes blob = unary_blob("8", "scale y x 2\n", "", "", true);
  const auto set_major = function<void(int)>("fake_cuda_major");
  for (const int major : {9, 10, 11}) {
    set_major(major);
    BackendDelegate delegate;
    CHECK(delegate.init(blob) == Error::DelegateInvalidCompatibility);
    CHECK(says("TensorRT-RTX does not support compute capability"));
  }
  set_environment_variable("TRT_ET_ANY_GPU", "1");
  BackendDelegate anyway, newer;
  CHECK(anyway.init(blob) == Error::Ok);
  set_environment_variable("TRT_ET_ANY_GPU", nullptr);
  set_major(12);
  CHECK(newer.init(blob) == Error::Ok);
}

struct Part {
  const char* name;
  void (*run)();
};

constexpr Part kParts[] = {
    {"contexts", test_only_the_engines_gpu_gets_a_context},
    {"own context", test_a_context_of_the_callers_own_stays_current},
    {"managed", test_managed_memory_is_waited_for},
    {"guard", test_a_guards_stream_of_another_gpu_than_the_first_is_used},
    {"green", test_streams_of_green_contexts_are_used},
    {"green graphs", test_graphs_stay_in_the_callers_green_context},
    {"captured copies", test_copies_leave_a_capture_as_it_is},
    {"capture", test_captures_of_the_caller},
    {"order", test_order_with_the_callers_own_work},
    {"buffers", test_buffers_in_turn_are_not_waited_for},
    {"codes", test_failures_have_codes},
    {"each call", test_each_call_that_fails_has_its_code},
    {"lost", test_a_lost_gpu_is_told_whatever_fails_first},
    {"end", test_the_end_of_the_process},
    {"fork", test_a_forked_process_says_so},
    {"forked end", test_a_forked_process_leaves_what_it_inherited},
    {"unsupported GPU", test_tensorrt_rtx_is_refused_where_it_has_no_target},
    {"fork at first use", test_a_fork_during_the_first_use},
    {"forks and threads", test_forks_beside_running_threads},
};

}  // namespace

void test_cuda_rules(const std::string& blob_file) {
  const char* wanted = std::getenv(kPart);
  if (wanted != nullptr) {
    use_fake_tensorrt();
    set_environment_variable("TRT_ET_CUDART_LIBRARY", TRT_ET_FAKE_CUDA);
    (void)driver();
  }
  for (const Part& part : kParts) {
    if (wanted == nullptr) {
      const bool fine = succeeds_alone("cuda_rules", blob_file, kPart, part.name);
      if (!fine) std::printf("part %s failed\n", part.name);
      CHECK(fine);
    } else if (std::strcmp(part.name, wanted) == 0) {
      part.run();
    }
  }
}
