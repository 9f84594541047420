// The reader of .pte files: a file that is written with its own segments is the same file, and
// whatever the bytes are, only those are read that are there.
#include "plugin/program_file.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include "provider_support.h"
#include "tests.h"
#include "trt_et/runtime.h"

using namespace trt_et;

namespace {

void check_copied(const Bytes& program) {
  ProgramFile file;
  CHECK_OK(file.open(program.data(), program.size()));
  CHECK(file.delegates().size() == 1);
  const ProgramFile::Delegate& delegate = file.delegates()[0];
  CHECK(delegate.method == "forward" && delegate.backend == TRT_ET_BACKEND_NAME);
  CHECK(delegate.in_segment && delegate.size > 4 &&
        std::string(delegate.bytes, delegate.bytes + 4) == "TRRF");
  char folder[] = "/tmp/trt_et_program_XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const std::string path = folder + std::string("/copy.pte");
  CHECK_OK(file.write(path, [&](size_t segment, const ProgramFile::Append& append) {
    return append(file.segment(segment), file.segment_size(segment));
  }));
  CHECK(read_bytes(path) == program);
  CHECK(std::filesystem::remove_all(folder) == 1 + 1);
}

void check_damaged_programs(const Bytes& program) {
  std::mt19937 random(0);
  // The flatbuffer, and the header in it.
  uint64_t size = 0;
  std::memcpy(&size, program.data() + 16, sizeof size);
  int taken = 0;
  for (int i = 0; i < 30000; ++i) {
    Bytes damaged = program;
    if (i % 8 == 0) damaged.resize(random() % damaged.size());
    for (int n = i % 3; n >= 0 && !damaged.empty(); --n) {
      damaged[random() % std::min<size_t>(size, damaged.size())] = static_cast<uint8_t>(random());
    }
    damaged.shrink_to_fit();
    ProgramFile file;
    if (!file.open(damaged.data(), damaged.size()).ok()) continue;
    ++taken;
    for (const ProgramFile::Delegate& delegate : file.delegates()) {
      const volatile uint8_t last = delegate.size == 0 ? 0 : delegate.bytes[delegate.size - 1];
      (void)last;
    }
  }
  CHECK(taken > 1000 && taken < 29000);
}

}  // namespace

void test_program_file(const std::string& blob_file) {
  const Bytes program = read_bytes(blob_file + "_program");
  CHECK(!program.empty());
  check_copied(program);
  check_damaged_programs(program);
}
