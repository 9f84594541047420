// Hard use of the plugin, on simulated GPUs, for tests/support/reliability. Numbers are printed as
// "name value" lines:
//
//   trt_et_hard_use PLUGIN flips PROGRAM CASES RESULTS  a child for each case, as in flips.cpp
//   trt_et_hard_use noop:PLUGIN flips ...               the same with a delegate that does nothing
//   trt_et_hard_use PLUGIN blob PROGRAM CASES           cases in the engine's blob, in this process
//   trt_et_hard_use PLUGIN cycles PROGRAM COUNT         load, run and unload
//   trt_et_hard_use PLUGIN executes PROGRAM COUNT       runs of one method
//   trt_et_hard_use PLUGIN soak SECONDS PROGRAM ...     all of that, by four threads
#include <dlfcn.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/platform/runtime.h>
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "commands.h"

namespace trt_et::hard_use {
namespace {

using namespace executorch::runtime;

// What is left of a program's risks when its delegates do nothing: those of ExecuTorch itself.
class NoopBackend final : public BackendInterface {
 public:
  bool is_available() const override { return true; }
  Result<DelegateHandle*> init(BackendInitContext&, FreeableBuffer*,
                               ArrayRef<CompileSpec>) const override {
    return nullptr;
  }
  Error execute(BackendExecutionContext&, DelegateHandle*, Span<EValue*>) const override {
    return Error::Ok;
  }
};

using Counter = int (*)(const char*, uint64_t*);
Counter g_counter = nullptr;
const char* (*g_last_error)() = nullptr;

// The first backend of a name counts: with "noop:", ours finds its name taken, and only its memory
// on GPUs is used.
void open_plugin(std::string path) {
  constexpr const char kNoop[] = "noop:";
  const bool noop = path.rfind(kNoop, 0) == 0;
  if (noop) {
    path = path.substr(sizeof kNoop - 1);
    static NoopBackend noop;
    if (register_backend({"TensorRTBackend", &noop}) != Error::Ok) die("the name is taken");
  }
  void* plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) die(dlerror());
  g_counter = reinterpret_cast<Counter>(dlsym(plugin, "trt_et_counter"));
  g_last_error = reinterpret_cast<const char* (*)()>(dlsym(plugin, "trt_et_last_error"));
  const auto devices = reinterpret_cast<int (*)()>(dlsym(plugin, "trt_et_device_count"));
  const auto add_allocator =
      reinterpret_cast<int (*)()>(dlsym(plugin, "trt_et_register_allocator"));
  if (noop && (add_allocator == nullptr || add_allocator() != 1)) die("no memory on GPUs");
  if (g_counter == nullptr || g_last_error == nullptr || devices == nullptr || devices() < 1) {
    die(path + " has no simulated GPUs");
  }
}

int run(const std::vector<std::string>& words) {
  const auto is = [&](const char* name, size_t count) {
    return words.size() == count + 2 && words[1] == name;
  };
  const auto number = [&](size_t at) { return std::strtoull(words[at].c_str(), nullptr, 10); };
  if (is("flips", 3)) return flip_in_children(read_file(words[2]), words[3], words[4]);
  if (is("blob", 2)) return flip_in_blob(read_file(words[2]), words[3]);
  if (is("cycles", 2)) return run_cycles(read_file(words[2]), number(3));
  if (is("executes", 2)) return run_executes(read_file(words[2]), number(3));
  if (words.size() > 3 && words[1] == "soak") {
    std::vector<Bytes> programs;
    for (size_t i = 3; i < words.size(); ++i) programs.push_back(read_file(words[i]));
    return run_soak(programs, std::atof(words[2].c_str()));
  }
  die("see the head of tests/runtime/hard_use/main.cpp");
}

}  // namespace

void die(const std::string& what) {
  std::fprintf(stderr, "trt_et_hard_use: %s\n", what.c_str());
  std::exit(2);
}

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) die(path + " cannot be read");
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

uint64_t counter(const char* name) {
  uint64_t value = 0;
  if (g_counter(name, &value) != 0) die(std::string("no counter ") + name);
  return value;
}

std::string last_error() { return g_last_error(); }

double host_heap() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) -
         static_cast<double>(counter("live_bytes"));
}

void print(const char* name, double value) {
  std::printf("%s %.9g\n", name, value);
  std::fflush(stdout);
}

}  // namespace trt_et::hard_use

int main(int argc, char** argv) {
  executorch::runtime::runtime_init();
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2) trt_et::hard_use::die("see the head of tests/runtime/hard_use/main.cpp");
  trt_et::hard_use::open_plugin(words[0]);
  return trt_et::hard_use::run(words);
}
