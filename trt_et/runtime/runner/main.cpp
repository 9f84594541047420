// Runs one method of a .pte: ExecuTorch's executor_runner, with the TensorRT backend linked in.
#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>
#include <trt_et/runtime.h>

#include <cstdio>
#include <exception>

#include "backend_options.h"
#include "etdump.h"
#include "flags.h"
#include "inputs.h"
#include "memory.h"
#include "outputs.h"
#include "timings.h"

namespace trt_et::runner {
namespace {

using executorch::extension::MmapDataLoader;
using executorch::runtime::Error;
using executorch::runtime::Method;
using executorch::runtime::Program;

int fail(const char* what, Error error) {
  std::fprintf(stderr, "executor_runner: %s: %s\n", what, executorch::runtime::to_string(error));
  const char* reason = trt_et_last_error();
  if (*reason != '\0') std::fprintf(stderr, "executor_runner: TensorRTBackend: %s\n", reason);
  return 1;
}

int execute(Method& method, const MethodMemory& memory, const Flags& flags, Timings& timings) {
  Inputs inputs;
  Outputs outputs;
  if (!inputs.prepare(method, flags) || !outputs.prepare(method)) return 1;
  const uint64_t runs = uint64_t{flags.warm_up} + flags.num_executions;
  for (uint64_t i = 0; i < runs; ++i) {
    if (!inputs.set(method, memory)) return 1;
    const auto start = Clock::now();
    const Error error = method.execute();
    timings.ran(Clock::now() - start, i < flags.warm_up);
    if (error != Error::Ok) return fail("execution failed", error);
  }
  if (!outputs.deliver(method, memory, flags.print_output, flags.output_file)) return 1;
  if (flags.print_timings) timings.print();
  return 0;
}

int run(const Flags& flags) {
  if (!flags.cuda.empty() && trt_et_choose_cuda(flags.cuda.c_str()) != 0) {
    return fail("--cuda is refused", Error::InvalidArgument);
  }
  const auto start = Clock::now();
  Timings timings;
  Etdump etdump(flags.etdump_path);
  auto loader =
      MmapDataLoader::from(flags.model_path.c_str(), MmapDataLoader::MlockConfig::NoMlock);
  if (!loader.ok()) {
    std::fprintf(stderr, "executor_runner: model file %s cannot be opened: %s\n",
                 flags.model_path.c_str(), executorch::runtime::to_string(loader.error()));
    return 1;
  }
  auto program = Program::load(&*loader, Program::Verification::InternalConsistency);
  if (!program.ok()) {
    std::fprintf(stderr, "executor_runner: %s is not a valid program: %s\n",
                 flags.model_path.c_str(), executorch::runtime::to_string(program.error()));
    return 1;
  }
  const auto first = program->get_method_name(0);
  if (!first.ok()) return fail("the program has no method", first.error());
  const char* name = flags.method_name.empty() ? *first : flags.method_name.c_str();
  const auto meta = program->method_meta(name);
  if (!meta.ok()) {
    std::fprintf(stderr, "executor_runner: the program has no method '%s'; its first is '%s'\n",
                 name, *first);
    return 1;
  }
  // Before the memory is planned, which --device moves, too.
  if (!set_backend_options(flags.options)) return 1;
  MethodMemory memory;
  if (!memory.plan(*meta))
    return fail("allocating the memory of the method failed", Error::MemoryAllocationFailed);
  auto method = program->load_method(name, &memory.manager(), etdump.tracer());
  if (!method.ok()) return fail("loading the method failed", method.error());
  timings.loaded(Clock::now() - start);
  const int result = execute(*method, memory, flags, timings);
  // After a failure too: the trace shows how far it came.
  return etdump.write() ? result : 1;
}

}  // namespace
}  // namespace trt_et::runner

int main(int argc, char** argv) {
  using namespace trt_et::runner;
  executorch::runtime::runtime_init();
  try {
    Flags flags;
    switch (parse_flags(argc, argv, &flags)) {
      case Parsed::done:
        return 0;
      case Parsed::wrong:
        return 1;
      case Parsed::run:
        return run(flags);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "executor_runner: %s\n", error.what());
  }
  return 1;
}
