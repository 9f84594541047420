// Runs methods of a .pte: ExecuTorch's executor_runner, with the TensorRT backend linked in.
#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/extension/flat_tensor/flat_tensor_data_map.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>
#include <fcntl.h>
#include <trt_et/runtime.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flags.h"
#include "inputs.h"
#include "memory.h"
#include "outputs.h"
#include "timings.h"

namespace trt_et::runner {
namespace {

using executorch::extension::FlatTensorDataMap;
using executorch::extension::MmapDataLoader;
using executorch::runtime::BackendOption;
using executorch::runtime::Error;
using executorch::runtime::Method;
using executorch::runtime::Program;

int fail(const char* what, Error error) {
  std::fprintf(stderr, "executor_runner: %s: %s\n", what, executorch::runtime::to_string(error));
  const char* reason = trt_et_last_error();
  if (*reason != '\0') std::fprintf(stderr, "executor_runner: TensorRTBackend: %s\n", reason);
  return 1;
}

// Sets the flags that are options of the backend for this process. False after a message on stderr.
bool set_backend_options(const std::vector<std::pair<std::string, std::string>>& options) {
  for (const auto& [name, text] : options) {
    BackendOption option{};
    std::array<char, executorch::runtime::kMaxOptionValueLength> value{};
    if (text.size() >= value.size()) {
      std::fprintf(stderr, "executor_runner: --%s has %zu characters, at most %zu are taken\n",
                   name.c_str(), text.size(), value.size() - 1);
      return false;
    }
    std::memcpy(value.data(), text.data(), text.size());
    std::memcpy(option.key, name.c_str(), name.size() + 1);
    option.value = value;
    if (executorch::runtime::set_option(TRT_ET_BACKEND_NAME, {&option, 1}) != Error::Ok) {
      std::fprintf(stderr, "executor_runner: --%s is refused: %s\n", name.c_str(),
                   trt_et_last_error());
      return false;
    }
  }
  return true;
}

// ExecuTorch's event trace of a run, as a file for executorch.devtools.Inspector.
struct Etdump {
  // An empty path: no trace is taken.
  explicit Etdump(const std::string& file) : path(file) {
    if (!path.empty()) generator.emplace();
  }

  // Null if no trace is taken.
  executorch::runtime::EventTracer* tracer() { return generator ? &*generator : nullptr; }

  // True if there is nothing to write; false after a message on stderr.
  bool write() {
    if (!generator) return true;
    const auto trace = generator->get_etdump_data();
    const std::unique_ptr<void, decltype(&std::free)> owned(trace.buf, &std::free);
    if (trace.buf == nullptr || trace.size == 0) {
      std::fprintf(stderr, "executor_runner: there is no event trace to write\n");
      return false;
    }
    return write_file("etdump", path, trace.buf, trace.size);
  }

  const std::string path;
  std::optional<executorch::etdump::ETDumpGen> generator;
};

// A method that is loaded, and what is its own.
struct Loaded {
  MethodMemory memory;
  std::optional<Method> method;
  Inputs inputs;
  Outputs outputs;
  Timings timings;
};

// The methods that were asked for, in order; empty after a message on stderr.
std::vector<std::string> chosen_methods(const Program& program, const Flags& flags,
                                        SharedArenas& arenas) {
  const auto first = program.get_method_name(0);
  if (!first.ok()) {
    fail("the program has no method", first.error());
    return {};
  }
  std::vector<std::string> names = flags.method_names;
  if (names.empty()) names.emplace_back(*first);
  for (const std::string& name : names) {
    const auto meta = program.method_meta(name.c_str());
    if (!meta.ok()) {
      std::fprintf(stderr, "executor_runner: the program has no method '%s'; its first is '%s'\n",
                   name.c_str(), *first);
      return {};
    }
    arenas.reserve(*meta);
  }
  return names;
}

// A file, and what it holds.
template <typename Content>
struct Mapped {
  std::optional<MmapDataLoader> loader;
  std::optional<Content> content;

  bool open(const char* what, const std::string& path) {
    auto found = MmapDataLoader::from(path.c_str(), MmapDataLoader::MlockConfig::NoMlock);
    if (!found.ok()) {
      std::fprintf(stderr, "executor_runner: %s file %s cannot be opened: %s\n", what, path.c_str(),
                   executorch::runtime::to_string(found.error()));
      return false;
    }
    loader.emplace(std::move(*found));
    return true;
  }

  template <typename... Arguments>
  bool read(const char* what, const std::string& path, Arguments... arguments) {
    auto loaded = Content::load(&*loader, arguments...);
    if (!loaded.ok()) {
      std::fprintf(stderr, "executor_runner: %s is not %s: %s\n", path.c_str(), what,
                   executorch::runtime::to_string(loaded.error()));
      return false;
    }
    content.emplace(std::move(*loaded));
    return true;
  }
};

bool load(const Program& program, const std::string& name, const Flags& flags,
          const FlatTensorDataMap* weights, Etdump& etdump, SharedArenas& arenas, Loaded& loaded) {
  const auto meta = program.method_meta(name.c_str());
  if (!meta.ok() || !loaded.memory.plan(*meta, arenas)) {
    fail("allocating the memory of the method failed", Error::MemoryAllocationFailed);
    return false;
  }
  auto method =
      program.load_method(name.c_str(), &loaded.memory.manager(), etdump.tracer(), weights);
  if (!method.ok()) {
    fail("loading the method failed", method.error());
    const char* reason = trt_et_last_error();
    const bool lacks_data = *reason == '\0' || std::strstr(reason, "external_data_map is null");
    if (weights == nullptr && lacks_data) {
      std::fputs(
          "executor_runner: if the program keeps weights in a file of its own (.ptd), name it "
          "with --data_path\n",
          stderr);
    }
    return false;
  }
  loaded.method.emplace(std::move(*method));
  return loaded.inputs.prepare(*loaded.method, flags) && loaded.outputs.prepare(*loaded.method);
}

bool execute(Loaded& loaded, const Flags& flags, const std::string& output_file) {
  Method& method = *loaded.method;
  const uint64_t runs = uint64_t{flags.warm_up} + flags.num_executions;
  for (uint64_t i = 0; i < runs; ++i) {
    if (!loaded.inputs.set(method, loaded.memory)) return false;
    const auto start = Clock::now();
    Error error = method.execute();
    // Outputs may stay on the GPU; a program without GPUs has used none.
    if (flags.print_timings && error == Error::Ok && loaded.memory.has_gpu_memory() &&
        trt_et_wait(-1) != 0) {
      error = Error::Internal;
    }
    loaded.timings.ran(Clock::now() - start, i < flags.warm_up);
    if (error == Error::Ok) continue;
    fail("execution failed", error);
    return false;
  }
  return loaded.outputs.deliver(method, loaded.memory, flags.print_output, output_file);
}

void print_memory(const std::map<std::string, Loaded>& methods) {
  for (const auto& [name, loaded] : methods) {
    if (methods.size() > 1) std::printf("Memory of %s\n", name.c_str());
    loaded.memory.print();
  }
  std::string engines(trt_et_describe_engines(nullptr, 0), ' ');
  (void)trt_et_describe_engines(engines.data(), engines.size() + 1);
  std::printf("Engines: %s\n", engines.c_str());
}

// Loads each method once, then runs them in order. `weights` may be null. `start`: when the first
// began to load.
bool run_methods(const Program& program, const Flags& flags, const FlatTensorDataMap* weights,
                 Etdump& etdump, Clock::time_point start) {
  SharedArenas arenas;
  const std::vector<std::string> names = chosen_methods(program, flags, arenas);
  // Before the memory is planned, which --device moves, too.
  if (names.empty() || !set_backend_options(flags.options)) return false;
  std::map<std::string, Loaded> methods;
  for (const std::string& name : names) {
    const auto [place, is_new] = methods.try_emplace(name);
    if (is_new && !load(program, name, flags, weights, etdump, arenas, place->second)) return false;
    if (is_new) place->second.timings.loaded(Clock::now() - start);
    start = Clock::now();
  }
  const bool shows = flags.print_output != PrintOutput::none;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names.size() > 1 && shows) std::printf("Method %s\n", names[i].c_str());
    // Files of several methods have the method's number in the list in their names.
    std::string output_file = flags.output_file;
    if (names.size() > 1 && !output_file.empty()) output_file += "-" + std::to_string(i);
    if (!execute(methods.at(names[i]), flags, output_file)) return false;
  }
  for (const auto& [name, loaded] : methods) {
    if (!flags.print_timings) break;
    if (methods.size() > 1) std::printf("Times of %s\n", name.c_str());
    loaded.timings.print();
  }
  if (flags.print_memory) print_memory(methods);
  return true;
}

int run(const Flags& flags) {
  if (!flags.cuda.empty() && trt_et_choose_cuda(flags.cuda.c_str()) != 0) {
    return fail("--cuda is refused", Error::InvalidArgument);
  }
  const auto start = Clock::now();
  Etdump etdump(flags.etdump_path);
  Mapped<Program> program;
  Mapped<FlatTensorDataMap> weights;
  if (!program.open("model", flags.model_path) ||
      !program.read("a valid program", flags.model_path,
                    Program::Verification::InternalConsistency)) {
    return 1;
  }
  if (!flags.data_path.empty() &&
      (!weights.open("data", flags.data_path) || !weights.read("a .ptd file", flags.data_path))) {
    return 1;
  }
  const FlatTensorDataMap* data = weights.content ? &*weights.content : nullptr;
  const bool done = run_methods(*program.content, flags, data, etdump, start);
  // After a failure too: the trace shows how far it came.
  return etdump.write() && done ? 0 : 1;
}

// One that is closed would be the next file that is opened, and get what is printed.
void keep_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0) (void)open("/dev/null", O_RDONLY);
  }
}

// What was printed has arrived only now.
int end(int status) {
  const bool failed_before = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !failed_before) return status;
  std::fprintf(stderr, "executor_runner: the standard output cannot be written: %s\n",
               failed_before ? "a write failed" : std::strerror(errno));
  return 1;
}

}  // namespace
}  // namespace trt_et::runner

int main(int argc, char** argv) {
  using namespace trt_et::runner;
  keep_standard_streams();
  executorch::runtime::runtime_init();
  try {
    Flags flags;
    switch (parse_flags(argc, argv, &flags)) {
      case Parsed::done:
        return end(0);
      case Parsed::wrong:
        return 1;
      case Parsed::run:
        return end(run(flags));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "executor_runner: %s\n", error.what());
  }
  return 1;
}
