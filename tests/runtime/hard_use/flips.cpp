// Damaged programs. A file of cases has lines "flip BYTE BIT", "cut SIZE" and "swap A B SIZE".
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "commands.h"

namespace trt_et::hard_use {
namespace {

constexpr auto kVerification = executorch::runtime::Program::Verification::InternalConsistency;

// How a case ended. A child that a signal ended has its number plus kSignal.
enum Outcome : uint8_t { kRight, kRefused, kFailed, kOther, kSignal = 100 };

constexpr unsigned kLimitSeconds = 20;
constexpr rlim_t kMemory = rlim_t{8} << 30;

struct Case {
  std::string kind;
  size_t a = 0, b = 0, size = 0;
};

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream file(path);
  std::vector<Case> cases;
  Case one;
  while (file >> one.kind >> one.a) {
    if (one.kind != "cut" && !(file >> one.b)) break;
    if (one.kind == "swap" && !(file >> one.size)) break;
    cases.push_back(one);
  }
  if (!file.eof() || cases.empty()) die(path + " is no list of cases");
  return cases;
}

// Returns how many bytes are left of the program. Doing a flip or a swap again undoes it.
size_t damage(Bytes& program, const Case& one) {
  if (one.kind == "cut") return std::min(one.a, program.size());
  if (one.kind == "flip") program.at(one.a) ^= static_cast<uint8_t>(1u << one.b);
  if (one.kind == "swap") {
    std::swap_ranges(program.begin() + static_cast<std::ptrdiff_t>(one.a),
                     program.begin() + static_cast<std::ptrdiff_t>(one.a + one.size),
                     program.begin() + static_cast<std::ptrdiff_t>(one.b));
  }
  return program.size();
}

Outcome run(const uint8_t* data, size_t size, const Bytes* expected) {
  // In memory of exactly that size.
  const Bytes copy(data, data + size);
  LoadedProgram program(copy.data(), copy.size());
  if (!program.load(kVerification)) return kRefused;
  if (!program.execute()) return kFailed;
  const Bytes found = program.outputs();
  return expected == nullptr || found == *expected ? kRight : kOther;
}

uint8_t outcome_of_child(Bytes& program, const Case& one, const Bytes& expected) {
  const pid_t child = fork();
  if (child < 0) die("fork fails");
  if (child == 0) {
    const rlimit limit{kMemory, kMemory};
    (void)setrlimit(RLIMIT_AS, &limit);
    (void)alarm(kLimitSeconds);
    const size_t size = damage(program, one);
    _exit(run(program.data(), size, &expected));
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) die("waitpid fails");
  return static_cast<uint8_t>(WIFSIGNALED(status) ? kSignal + WTERMSIG(status)
                                                  : WEXITSTATUS(status));
}

void silence() {
  const int nowhere = open("/dev/null", O_WRONLY);
  if (nowhere >= 0) (void)dup2(nowhere, STDERR_FILENO);
}

}  // namespace

int flip_in_children(const Bytes& original, const std::string& cases, const std::string& results) {
  Bytes program = original;
  Bytes expected;
  {
    LoadedProgram intact(program.data(), program.size());
    if (!intact.load(kVerification) || !intact.execute()) die("the intact program does not run");
    expected = intact.outputs();
  }
  std::ofstream out(results, std::ios::binary);
  silence();
  for (const Case& one : read_cases(cases)) {
    const uint8_t outcome = outcome_of_child(program, one, expected);
    out.put(static_cast<char>(outcome)).flush();
  }
  return out.good() ? 0 : 1;
}

// Nothing of a damaged blob may reach the library of engines. With the fake TensorRT its calls are
// counted; the intact program makes some.
int flip_in_blob(const Bytes& original, const std::string& cases) {
  Bytes program = original;
  const uint64_t at_first = counter("fake_calls") + counter("engine_loads");
  (void)run(program.data(), program.size(), nullptr);
  print("intact_library_calls",
        static_cast<double>(counter("fake_calls") + counter("engine_loads") - at_first));
  uint64_t refused = 0, calls = 0, without_reason = 0;
  silence();
  const std::vector<Case> all = read_cases(cases);
  for (const Case& one : all) {
    const uint64_t before = counter("fake_calls") + counter("engine_loads");
    const size_t size = damage(program, one);
    refused += run(program.data(), size, nullptr) == kRefused;
    without_reason += last_error().empty();
    calls += counter("fake_calls") + counter("engine_loads") - before;
    (void)damage(program, one);
  }
  print("cases", static_cast<double>(all.size()));
  print("refused", static_cast<double>(refused));
  print("without_reason", static_cast<double>(without_reason));
  print("library_calls", static_cast<double>(calls));
  return 0;
}

}  // namespace trt_et::hard_use
