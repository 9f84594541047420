#include "callers.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <trt_et/runtime.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "bound_program.h"

namespace trt_et::gpu_check {
namespace {

// A function of CUDA's driver.
template <typename... A>
void driver(const char* name, A... arguments) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  using Function = int (*)(A...);
  const auto function =
      reinterpret_cast<Function>(library == nullptr ? nullptr : dlsym(library, name));
  if (function == nullptr) bench::die(std::string("libcuda.so.1 has no ") + name);
  if (const int code = function(arguments...)) {
    bench::die(std::string(name) + ": error " + std::to_string(code));
  }
}

using Run = std::function<Floats(float)>;

int count_wrong(const std::map<int, Floats>& expected, int rounds, const Run& run) {
  int wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    const int value = 1 + i % 2;
    if (run(static_cast<float>(value)) != expected.at(value)) ++wrong;
  }
  return wrong;
}

int report(const std::map<std::string, int>& wrong) {
  int all = 0;
  for (const auto& [name, count] : wrong) {
    std::printf("%s %d\n", name.c_str(), count);
    all += count;
  }
  return all == 0 ? 0 : 2;
}

void use(cuda::Stream stream) {
  if (trt_et_use_stream(0, stream) != 0) bench::die("using a stream");
}

cuda::Stream new_stream() {
  cuda::Stream stream = nullptr;
  check(cuda0().create_stream(cuda::StreamKind::non_blocking, &stream), "making a stream");
  return stream;
}

int wrong_on(cuda::Stream stream, const std::string& path, int rounds,
             const std::map<int, Floats>& expected) {
  use(stream);
  int wrong = 0;
  {
    BoundProgram program(path);
    wrong = count_wrong(expected, rounds,
                        [&](float value) { return program.run_between_copies(value, stream); });
  }
  use(nullptr);
  return wrong;
}

int check_own_stream(const std::string& path, int rounds) {
  const auto expected = expected_of(path);
  const cuda::Stream stream = new_stream();
  const int wrong = wrong_on(stream, path, rounds, expected);
  check(cuda0().destroy_stream(stream), "destroying a stream");
  return report({{"wrong", wrong}});
}

// How many multiprocessors of cuda:0 have run the kernels in place of TensorRT since the last
// question; -1: TensorRT's own kernels do not tell.
int multiprocessors_met() {
  const char* name = std::getenv("TRT_ET_TENSORRT_LIBRARY");
  void* library = name == nullptr ? nullptr : dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  const auto ask = reinterpret_cast<int (*)()>(
      library == nullptr ? nullptr : dlsym(library, "kernels_multiprocessors"));
  return ask == nullptr ? -1 : ask();
}

// Some of the multiprocessors of cuda:0.
struct Green {
  void *context = nullptr, *as_context = nullptr, *stream = nullptr;
  int multiprocessors = 0;

  Green() {
    // CUdevResource of cuda.h, 144 bytes: its type, room, and first the count of multiprocessors.
    struct Resource {
      unsigned type;
      unsigned char room[92];
      unsigned multiprocessors;
      unsigned char more[44];
    };
    constexpr unsigned kMultiprocessors = 1, kDefaultStream = 1, kNonBlocking = 1;
    Resource all{}, some{}, rest{};
    unsigned groups = 1;
    void* description = nullptr;
    driver("cuDeviceGetDevResource", 0, &all, kMultiprocessors);
    driver("cuDevSmResourceSplitByCount", &some, &groups, &all, &rest, 0U, 8U);
    driver("cuDevResourceGenerateDesc", &description, &some, 1U);
    driver("cuGreenCtxCreate", &context, description, 0, kDefaultStream);
    driver("cuGreenCtxStreamCreate", &stream, context, kNonBlocking, 0);
    driver("cuCtxFromGreenCtx", &as_context, context);
    std::printf("multiprocessors %u\nof %u\n", some.multiprocessors, all.multiprocessors);
    multiprocessors = static_cast<int>(some.multiprocessors);
  }
};

int check_green(const std::string& path, int rounds) {
  const auto expected = expected_of(path);
  const Green green;
  (void)multiprocessors_met();
  const int beside = wrong_on(green.stream, path, rounds, expected);
  driver("cuCtxPushCurrent_v2", green.as_context);
  int current = wrong_on(green.stream, path, rounds, expected);
  void* found = nullptr;
  driver("cuCtxPopCurrent_v2", &found);  // cuda0() has put the primary one on top.
  // More than the context has: a CUDA graph of another context would run on all of them.
  const int met = multiprocessors_met();
  return report({{"wrong", beside},
                 {"wrong_where_it_is_current", current},
                 {"left_its_multiprocessors", met > green.multiprocessors ? met : 0}});
}

int check_capture(const std::string& path, int rounds) {
  const auto expected = expected_of(path);
  BoundProgram program(path);
  const cuda::Stream stream = new_stream();
  use(stream);
  for (int i = 0; i < 2; ++i) (void)program.run_between_copies(1, stream);
  cuda::Graph graph = nullptr;
  check(cuda0().begin_capture(stream), "capturing");
  program.execute();
  check(cuda0().end_capture(stream, &graph), "ending the capture");
  const auto launch = [&](float value) {
    program.write(value, stream);
    check(cuda0().launch_graph(graph, stream), "launching");
    return program.read(stream);
  };
  const auto plain = [&](float value) { return program.run_between_copies(value, stream); };
  const int launched = count_wrong(expected, rounds, launch);
  const int beside = count_wrong(expected, rounds, plain);
  const int again = count_wrong(expected, rounds, launch);
  check(cuda0().destroy_graph(graph), "destroying a graph");
  use(nullptr);
  return report({{"wrong", launched}, {"wrong_beside", beside}, {"wrong_again", again}});
}

int check_memory_kinds(const std::string& path, int rounds) {
  const auto expected = expected_of(path);
  std::map<std::string, int> wrong;
  for (const char* kind : {"pageable", "pinned", "managed"}) {
    BoundProgram program(path);
    const size_t bytes = program.floats() * sizeof(float);
    void* memory = nullptr;
    if (std::strcmp(kind, "pageable") == 0) memory = std::malloc(bytes);
    if (std::strcmp(kind, "pinned") == 0) driver("cuMemAllocHost_v2", &memory, bytes);
    constexpr unsigned kGlobal = 1;
    if (std::strcmp(kind, "managed") == 0) driver("cuMemAllocManaged", &memory, bytes, kGlobal);
    wrong[std::string("wrong_") + kind] = count_wrong(expected, rounds, [&](float value) {
      return program.run_on(value, static_cast<float*>(memory));
    });
    // It stays until the process ends: the program may still hold its address.
  }
  return report(wrong);
}

int check_own_context(const std::string& path, int rounds) {
  const auto expected = expected_of(path);
  void *own = nullptr, *stream = nullptr;
  std::map<std::string, int> wrong;
  std::thread([&] {
    driver("cuCtxCreate_v2", &own, 0U, 0);
    driver("cuStreamCreate", &stream, 1U);
    wrong["stream_is_taken"] = trt_et_use_stream(0, stream) == 0 ? 1 : 0;
    std::fprintf(stderr, "its stream: %s\n", trt_et_last_error());
    bench::LoadedMethod method(path);
    method.bind(true);
    method.execute();
    void* current = nullptr;
    driver("cuCtxGetCurrent", &current);
    wrong["context_is_another"] = current == own ? 0 : 1;
    BoundProgram program(path);
    wrong["wrong"] = count_wrong(expected, rounds,
                                 [&](float value) { return program.run_between_copies(value); });
  }).join();
  return report(wrong);
}

int check_fork(const std::string& path, int rounds) {
  const auto expected = expected_of(path);
  auto program = std::make_unique<BoundProgram>(path);
  (void)program->run_alone(1);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    (void)alarm(60);
    if (!program->refuses() || trt_et_device_count() != -1) std::_Exit(3);
    std::fprintf(stderr, "the child: %s\n", trt_et_last_error());
    program.reset();
    std::exit(0);  // As a program ends, with static objects.
  }
  int status = -1;
  if (waitpid(child, &status, 0) != child) bench::die("waiting for the child");
  const int wrong = count_wrong(expected, rounds,
                                [&](float value) { return program->run_between_copies(value); });
  return report({{"child_status", status}, {"wrong", wrong}});
}

}  // namespace

int check_caller(const std::string& part, const std::string& program, int rounds) {
  static const std::map<std::string, int (*)(const std::string&, int)> kParts = {
      {"own_stream", check_own_stream},   {"green", check_green},
      {"capture", check_capture},         {"memory_kinds", check_memory_kinds},
      {"own_context", check_own_context}, {"fork", check_fork},
  };
  const auto found = kParts.find(part);
  if (found == kParts.end()) bench::die("no part " + part);
  return found->second(program, rounds);
}

}  // namespace trt_et::gpu_check
