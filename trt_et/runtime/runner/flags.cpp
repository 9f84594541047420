#include "flags.h"

#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace trt_et::runner {
namespace {

constexpr const char* kUsage =
    "usage: executor_runner --model_path FILE [flags]\n"
    "  --model_path FILE       program to run (default: model.pte)\n"
    "  --data_path FILE        the program's external weights (.ptd)\n"
    "  --inputs FILE,FILE,...  each tensor input: a .npy file, or raw bytes (default: all ones); a "
    "comma\n"
    "                          in a name is written \\,\n"
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
    "  --cuda MODE             real, simulated:N or auto:N (default: the environment variable "
    "TRT_ET_CUDA;\n"
    "                          without it, real, or simulated for reference engines if there is no "
    "GPU)\n"
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
    "  --build 0|1             whether engines of networks may be built (default: 1)\n"
    "  --engine_folder FOLDER  where built engines are kept, or off\n"
    "  --profile_layers        trace the time of every layer; needs --etdump_path\n"
    "  --help                  show this\n"
    "Simulated GPUs, on host memory, run reference engines.\n";

// "a,b"; a comma behind a backslash is part of a name.
std::vector<std::string> split(const char* list) {
  std::vector<std::string> parts(1);
  for (const char* c = list; *c != '\0'; ++c) {
    if (c[0] == '\\' && c[1] == ',') {
      parts.back() += *++c;
    } else if (*c == ',') {
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

// A flag, and what it does with its text.
struct Flag {
  const char* name;
  bool (*take)(const char* name, const char* text, Flags* flags);
  bool has_text = true;
};

template <std::string Flags::* member>
bool take_text(const char*, const char* text, Flags* flags) {
  flags->*member = text;
  return true;
}

template <std::vector<std::string> Flags::* member>
bool take_list(const char*, const char* text, Flags* flags) {
  if (*text != '\0') flags->*member = split(text);
  return true;
}

template <uint32_t Flags::* member, uint32_t least>
bool take_number(const char* name, const char* text, Flags* flags) {
  return parse_number(name, text, least, &(flags->*member));
}

template <bool Flags::* member>
bool take_switch(const char*, const char*, Flags* flags) {
  return flags->*member = true;
}

bool take_sizes(const char*, const char* text, Flags* flags) {
  return parse_sizes(text, &flags->input_sizes);
}

bool take_seed(const char* name, const char* text, Flags* flags) {
  uint32_t seed = 0;
  if (!parse_number(name, text, 0, &seed)) return false;
  flags->random_seed = seed;
  return true;
}

bool take_print(const char*, const char* text, Flags* flags) {
  return parse_print(text, &flags->print_output);
}

bool take_layers(const char* name, const char*, Flags* flags) {
  flags->options.emplace_back(name, "1");
  return true;
}

constexpr Flag kFlags[] = {
    {"model_path", take_text<&Flags::model_path>},
    {"data_path", take_text<&Flags::data_path>},
    {"inputs", take_list<&Flags::inputs>},
    {"input_sizes", take_sizes},
    {"random_inputs", take_seed},
    {"output_file", take_text<&Flags::output_file>},
    {"method_name", take_list<&Flags::method_names>},
    {"num_executions", take_number<&Flags::num_executions, 1>},
    {"warm_up", take_number<&Flags::warm_up, 0>},
    {"print_output", take_print},
    {"print_timings", take_switch<&Flags::print_timings>, false},
    {"print_memory", take_switch<&Flags::print_memory>, false},
    {"etdump_path", take_text<&Flags::etdump_path>},
    {"cuda", take_text<&Flags::cuda>},
    {"profile_layers", take_layers, false},
    {"help", nullptr, false},
};

// Options of the backend, which says what it takes.
constexpr const char* kOptions[] = {"device",
                                    "cuda_graphs",
                                    "build",
                                    "shared_device_memory",
                                    "dla_core",
                                    "engine_folder",
                                    "engine_host_code",
                                    "execution_contexts",
                                    "blocking_waits",
                                    "optimization_profile",
                                    "weight_streaming_budget",
                                    "runtime_cache",
                                    "warm_up_at_load",
                                    "plugin_libraries"};

// For getopt_long_only(), which gives a flag's place in both lists, from 1 on, or '?'.
static_assert(std::size(kFlags) + std::size(kOptions) < '?');
std::vector<option> all_flags() {
  std::vector<option> all;
  for (const Flag& flag : kFlags) {
    const int place = static_cast<int>(all.size()) + 1;
    all.push_back({flag.name, flag.has_text ? required_argument : no_argument, nullptr, place});
  }
  for (const char* name : kOptions) {
    all.push_back({name, required_argument, nullptr, static_cast<int>(all.size()) + 1});
  }
  all.push_back({});
  return all;
}

}  // namespace

Parsed parse_flags(int argc, char** argv, Flags* flags) {
  if (argc < 2) {
    std::fputs(kUsage, stderr);
    return Parsed::wrong;
  }
  const std::vector<option> known = all_flags();
  for (int code; (code = getopt_long_only(argc, argv, "", known.data(), nullptr)) != -1;) {
    const bool is_known = code != '?';  // Else getopt has said what it is.
    if (is_known && code > static_cast<int>(std::size(kFlags))) {
      flags->options.emplace_back(known[code - 1].name, optarg);
      continue;
    }
    if (is_known && kFlags[code - 1].take == nullptr) {
      std::fputs(kUsage, stdout);
      return Parsed::done;
    }
    if (!is_known || !kFlags[code - 1].take(kFlags[code - 1].name, optarg, flags)) {
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
