// The command line of executor_runner, in the way of ExecuTorch's own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trt_et::runner {

enum class PrintOutput { none, summary, all };

struct Flags {
  std::string model_path = "model.pte";
  std::string data_path;  // weights outside of the program; empty: none
  std::vector<std::string> inputs;
  // Sizes of the tensor inputs; empty where one is as large as it may be.
  std::vector<std::vector<int32_t>> input_sizes;
  std::optional<uint64_t> random_seed;  // random inputs in place of ones
  std::string output_file;
  std::vector<std::string> method_names;  // run one after another; empty: the program's first
  uint32_t warm_up = 0;
  uint32_t num_executions = 1;
  PrintOutput print_output = PrintOutput::all;
  bool print_timings = false;
  bool print_memory = false;
  std::string etdump_path;
  std::string cuda;
  // Load options of the backend, as they were given: name and value.
  std::vector<std::pair<std::string, std::string>> options;
};

enum class Parsed { run, done, wrong };

// Reads --name=value, --name value, and the same with one dash. "done" after --help. What is wrong
// has been written to stderr.
Parsed parse_flags(int argc, char** argv, Flags* flags);

}  // namespace trt_et::runner
