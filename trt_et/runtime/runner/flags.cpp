#include "flags.h"

#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace trt_et::runner {
namespace {

constexpr const char* kUsage =
    "usage: executor_runner --model_path FILE [flags]\n"
    "  --model_path FILE       program to run (default: model.pte)\n"
    "  --write_engines FILE    build the engines of the program's ONNX networks, and write the "
    "program\n"
    "                          with them to FILE; nothing runs\n"
    "  --data_path FILE        the program's external weights (.ptd)\n"
    "  --inputs FILE,FILE,...  each tensor input: a .npy file, or raw bytes (default: all ones)\n"
    "  --input_sizes 2x8,4     sizes of each tensor input, where they are dynamic (default: what "
    "a\n"
    "                          .npy file has, or the largest); an empty one keeps the default\n"
    "  --random_inputs SEED    random inputs, the same for the same seed\n"
    "  --output_file BASE      write output i to BASE-i.bin\n"
    "  --method_name NAME,...  methods to run, one after another (default: the program's first)\n"
    "  --num_executions N      number of runs (default: 1)\n"
    "  --warm_up N             runs before those, which --print_timings leaves out (default: 0)\n"
    "  --print_output MODE     none, summary, or all (default: all)\n"
    "  --print_timings         times to load, of the first run, and of the others\n"
    "  --print_memory          planned memory of each method, and facts about its engines\n"
    "  --etdump_path FILE      write ExecuTorch's event trace, with the delegates' events\n"
    "  --cuda MODE             real, simulated:N or auto:N, instead of the environment variable "
    "TRT_ET_CUDA\n"
    "  --device N              GPU to load every engine onto, instead of the one in its blob\n"
    "  --cuda_graphs 0|1       whether engines run through CUDA graphs (default: 1)\n"
    "  --warm_up_at_load 0|1   whether each engine runs at load, with zeros (default: 0)\n"
    "  --shared_device_memory 0|1\n"
    "                          whether the method's engines share scratch memory (default: 0)\n"
    "  --weight_streaming_budget BYTES\n"
    "                          GPU memory for weights, or auto\n"
    "  --runtime_cache FOLDER  where TensorRT-RTX keeps compiled kernels, or off\n"
    "  --plugin_libraries PATHS\n"
    "                          libraries with TensorRT plugins, separated by ':'\n"
    "  --dla_core N            the DLA core for engines that were built for DLA\n"
    "  --engine_host_code 0|1  whether code in engines may run on the host (default: 0)\n"
    "  --build_with LIBRARY    tensorrt or tensorrt_rtx: builds the engines of networks\n"
    "  --build 0|1             whether engines of networks may be built (default: 1)\n"
    "  --engine_folder FOLDER  where built engines are kept, or off\n"
    "  --engine_folder_limit BYTES\n"
    "                          how much room they may take (default: 20 GiB)\n"
    "  --pinned_staging BYTES  copy from and to the host through this much pinned memory\n"
    "  --profile_layers        trace the time of every layer; needs --etdump_path\n"
    "  --help                  show this\n"
    "Simulated GPUs, on host memory, run reference engines.\n";

enum Option {
  kModelPath = 1,
  kDataPath,
  kWriteEngines,
  kInputs,
  kInputSizes,
  kRandomInputs,
  kOutputFile,
  kMethodName,
  kNumExecutions,
  kWarmUp,
  kPrintOutput,
  kPrintTimings,
  kPrintMemory,
  kEtdumpPath,
  kCuda,
  kProfileLayers,
  kLoadOption,
  kHelp
};

constexpr option kOptions[] = {
    {"model_path", required_argument, nullptr, kModelPath},
    {"data_path", required_argument, nullptr, kDataPath},
    {"write_engines", required_argument, nullptr, kWriteEngines},
    {"inputs", required_argument, nullptr, kInputs},
    {"input_sizes", required_argument, nullptr, kInputSizes},
    {"random_inputs", required_argument, nullptr, kRandomInputs},
    {"output_file", required_argument, nullptr, kOutputFile},
    {"method_name", required_argument, nullptr, kMethodName},
    {"num_executions", required_argument, nullptr, kNumExecutions},
    {"warm_up", required_argument, nullptr, kWarmUp},
    {"print_output", required_argument, nullptr, kPrintOutput},
    {"print_timings", no_argument, nullptr, kPrintTimings},
    {"print_memory", no_argument, nullptr, kPrintMemory},
    {"etdump_path", required_argument, nullptr, kEtdumpPath},
    {"cuda", required_argument, nullptr, kCuda},
    {"profile_layers", no_argument, nullptr, kProfileLayers},
    // Of the backend, which says what it takes.
    {"device", required_argument, nullptr, kLoadOption},
    {"cuda_graphs", required_argument, nullptr, kLoadOption},
    {"shared_device_memory", required_argument, nullptr, kLoadOption},
    {"use_shared_activation_scratch", required_argument, nullptr, kLoadOption},
    {"use_shared_engines", required_argument, nullptr, kLoadOption},
    {"execution_contexts", required_argument, nullptr, kLoadOption},
    {"optimization_profile", required_argument, nullptr, kLoadOption},
    {"blocking_waits", required_argument, nullptr, kLoadOption},
    {"warm_up_at_load", required_argument, nullptr, kLoadOption},
    {"weight_streaming_budget", required_argument, nullptr, kLoadOption},
    {"pinned_staging", required_argument, nullptr, kLoadOption},
    {"runtime_cache", required_argument, nullptr, kLoadOption},
    {"plugin_libraries", required_argument, nullptr, kLoadOption},
    {"dla_core", required_argument, nullptr, kLoadOption},
    {"engine_host_code", required_argument, nullptr, kLoadOption},
    {"build_with", required_argument, nullptr, kLoadOption},
    {"build", required_argument, nullptr, kLoadOption},
    {"engine_folder", required_argument, nullptr, kLoadOption},
    {"engine_folder_limit", required_argument, nullptr, kLoadOption},
    {"help", no_argument, nullptr, kHelp},
    {nullptr, 0, nullptr, 0},
};

std::vector<std::string> split(const char* list) {
  std::vector<std::string> parts(1);
  for (const char* c = list; *c != '\0'; ++c) {
    if (*c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += *c;
    }
  }
  return parts;
}

bool parse_number(const char* flag, const char* text, uint32_t least, uint32_t* number) {
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || value < least || value > UINT32_MAX) {
    std::fprintf(stderr, "executor_runner: --%s is '%s'; expected a number from %u\n", flag, text,
                 least);
    return false;
  }
  *number = static_cast<uint32_t>(value);
  return true;
}

// "2x8,,4": sizes of the first and the third input.
bool parse_sizes(const char* text, std::vector<std::vector<int32_t>>* sizes) {
  for (const std::string& part : split(text)) {
    sizes->emplace_back();
    const char* at = part.c_str();
    while (*at != '\0') {
      char* end = nullptr;
      const unsigned long value = std::strtoul(at, &end, 10);
      const bool ends = *end == '\0' || (*end == 'x' && end[1] != '\0');
      if (*at < '0' || *at > '9' || value > INT32_MAX || !ends) {
        std::fprintf(stderr, "executor_runner: --input_sizes is '%s'; expected one like 2x8,4\n",
                     text);
        return false;
      }
      sizes->back().push_back(static_cast<int32_t>(value));
      at = *end == '\0' ? end : end + 1;
    }
  }
  return true;
}

bool parse_print(const char* text, PrintOutput* mode) {
  constexpr const char* kModes[] = {"none", "summary", "all"};
  for (int i = 0; i < 3; ++i) {
    if (std::strcmp(text, kModes[i]) == 0) {
      *mode = static_cast<PrintOutput>(i);
      return true;
    }
  }
  std::fprintf(stderr, "executor_runner: --print_output is '%s'; expected none, summary or all\n",
               text);
  return false;
}

bool take(int code, const char* name, Flags* flags) {
  switch (code) {
    case kModelPath:
      flags->model_path = optarg;
      return true;
    case kDataPath:
      flags->data_path = optarg;
      return true;
    case kWriteEngines:
      flags->engines_file = optarg;
      return true;
    case kInputs:
      if (*optarg != '\0') flags->inputs = split(optarg);
      return true;
    case kOutputFile:
      flags->output_file = optarg;
      return true;
    case kMethodName:
      if (*optarg != '\0') flags->method_names = split(optarg);
      return true;
    case kNumExecutions:
      return parse_number(name, optarg, 1, &flags->num_executions);
    case kWarmUp:
      return parse_number(name, optarg, 0, &flags->warm_up);
    case kInputSizes:
      return parse_sizes(optarg, &flags->input_sizes);
    case kRandomInputs: {
      uint32_t seed = 0;
      if (!parse_number(name, optarg, 0, &seed)) return false;
      flags->random_seed = seed;
      return true;
    }
    case kPrintOutput:
      return parse_print(optarg, &flags->print_output);
    case kPrintTimings:
      flags->print_timings = true;
      return true;
    case kPrintMemory:
      flags->print_memory = true;
      return true;
    case kEtdumpPath:
      flags->etdump_path = optarg;
      return true;
    case kCuda:
      flags->cuda = optarg;
      return true;
    case kProfileLayers:
      flags->options.emplace_back("profile_layers", "1");
      return true;
    case kLoadOption:
      flags->options.emplace_back(name, optarg);
      return true;
    default:
      return false;  // getopt has said what it is.
  }
}

}  // namespace

Parsed parse_flags(int argc, char** argv, Flags* flags) {
  if (argc < 2) {
    std::fputs(kUsage, stderr);
    return Parsed::wrong;
  }
  int index = 0;
  for (int code; (code = getopt_long_only(argc, argv, "", kOptions, &index)) != -1;) {
    if (code == kHelp) {
      std::fputs(kUsage, stdout);
      return Parsed::done;
    }
    if (!take(code, kOptions[index].name, flags)) {
      std::fputs("try executor_runner --help\n", stderr);
      return Parsed::wrong;
    }
  }
  if (optind < argc) {
    std::fprintf(stderr, "executor_runner: unexpected argument '%s'\ntry executor_runner --help\n",
                 argv[optind]);
    return Parsed::wrong;
  }
  if (flags->random_seed && !flags->inputs.empty()) {
    std::fputs("executor_runner: --random_inputs and --inputs exclude each other\n", stderr);
    return Parsed::wrong;
  }
  for (const auto& [name, value] : flags->options) {
    if (name != "profile_layers" || !flags->etdump_path.empty()) continue;
    std::fputs("executor_runner: --profile_layers needs --etdump_path, where the times go\n",
               stderr);
    return Parsed::wrong;
  }
  return Parsed::run;
}

}  // namespace trt_et::runner
