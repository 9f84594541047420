#include "options.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <type_traits>

#include "common/immortal.h"
#include "common/log.h"
#include "common/process.h"

namespace trt_et {
namespace {

using executorch::runtime::ArrayRef;
using executorch::runtime::BackendInitContext;
using executorch::runtime::BackendOption;
using executorch::runtime::CompileSpec;
using executorch::runtime::OptionValue;
using executorch::runtime::Span;

constexpr const char* kPrefix = "TRT_ET_";  // of variables of the environment

// An option, and how its text is read.
struct Option {
  const char* name;
  Status (*read)(const Option& option, const std::string& text, LoadOptions* options);
  // A program names no folder that kernels are read from, no library, and runs no code on the host.
  bool is_for_users_only = false;
  const char* theirs = nullptr;  // what the delegate of Torch-TensorRT calls the same

  bool is(const char* key) const {
    return std::strcmp(key, name) == 0 || (theirs != nullptr && std::strcmp(key, theirs) == 0);
  }
  // An empty text leaves the option as it is.
  Status read_into(LoadOptions* options, const std::string& text) const {
    return text.empty() ? Status{} : read(*this, text, options);
  }
  // TRT_ET_<NAME>
  std::string variable() const {
    std::string text = std::string(kPrefix) + name;
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text;
  }
};

struct Settings {
  std::mutex mutex;
  std::map<std::string, std::string> values;
};

std::string text_of(const OptionValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "1" : "0";
  if (const auto* number = std::get_if<int>(&value)) return std::to_string(*number);
  const auto* text =
      std::get_if<std::array<char, executorch::runtime::kMaxOptionValueLength>>(&value);
  return text == nullptr ? "" : std::string(text->data(), strnlen(text->data(), text->size()));
}

// What the user says of one option for the whole process; empty: nothing.
std::string find_for_process(const Option& option) {
  {
    auto& all = immortal<Settings>();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.values.find(option.name);
    if (found != all.values.end() && !found->second.empty()) return found->second;
  }
  const char* value = environment_variable(option.variable().c_str());
  return value == nullptr ? "" : value;
}

// What the user says of one option; empty: nothing.
std::string find(const Option& option, const BackendInitContext& context,
                 ArrayRef<CompileSpec> compile_specs) {
  for (const BackendOption& spec : context.runtime_specs()) {
    if (option.is(spec.key)) return text_of(spec.value);
  }
  std::string value = find_for_process(option);
  if (!value.empty() || option.is_for_users_only) return value;
  for (const CompileSpec& spec : compile_specs) {
    if (!option.is(spec.key)) continue;
    return std::string(static_cast<const char*>(spec.value.buffer), spec.value.nbytes);
  }
  return "";
}

bool parse_integer(const std::string& text, int64_t* value) {
  char* end = nullptr;
  errno = 0;
  const long long parsed = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0) return false;
  *value = parsed;
  return true;
}

Status bad(const Option& option, const std::string& text, const char* expected) {
  return fail(Error::InvalidArgument, "option %s (%s) is '%.40s'; expected %s", option.name,
              option.variable().c_str(), text.c_str(), expected);
}

// Readers of one kind of option each; an empty text is none.

Status read_device(const Option& option, const std::string& text, LoadOptions* options) {
  int64_t index = 0;
  const bool prefixed = text.rfind("cuda:", 0) == 0;
  if (!parse_integer(prefixed ? text.substr(5) : text, &index) || index < 0 || index > 127) {
    return bad(option, text, "a GPU such as 1 or cuda:1");
  }
  options->device = static_cast<int>(index);
  return {};
}

template <bool LoadOptions::* member>
Status read_switch(const Option& option, const std::string& text, LoadOptions* options) {
  const bool on = text == "1" || text == "on" || text == "true";
  const bool off = text == "0" || text == "off" || text == "false";
  if (!on && !off) return bad(option, text, "0 or 1");
  options->*member = on;
  return {};
}

Status read_budget(const Option& option, const std::string& text, LoadOptions* options) {
  int64_t budget = -1;
  const bool percent = !text.empty() && text.back() == '%';
  const bool number = parse_integer(percent ? text.substr(0, text.size() - 1) : text, &budget);
  if (text != "auto" && (!number || budget < (percent ? 0 : -1) || (percent && budget > 100))) {
    return bad(option, text, "a number of bytes, a percentage such as 50%, or auto");
  }
  options->weight_streaming_budget = percent ? TRT_ET_PERCENT_BUDGET(budget) : budget;
  return {};
}

// A number from `low` to `high`.
template <auto member, int64_t low, int64_t high>
Status read_number(const Option& option, const std::string& text, LoadOptions* options) {
  int64_t number = 0;
  if (!parse_integer(text, &number) || number < low || number > high) {
    const std::string range =
        "a number from " + std::to_string(low) + " to " + std::to_string(high);
    return bad(option, text, range.c_str());
  }
  options->*member = static_cast<std::decay_t<decltype(options->*member)>>(number);
  return {};
}

// Every path is absolute: what the current folder holds is not loaded.
Status read_libraries(const Option& option, const std::string& text, LoadOptions* options) {
  for (size_t begin = 0; begin <= text.size();) {
    if (text[begin] != '/') return bad(option, text, "absolute paths, separated by ':'");
    begin = std::min(text.find(':', begin), text.size()) + 1;
  }
  options->plugin_libraries = text;
  return {};
}

template <std::string LoadOptions::* member>
Status read_folder(const Option& option, const std::string& text, LoadOptions* options) {
  if (text != "off" && text.front() != '/') {
    return bad(option, text, "an absolute path of a folder, or off");
  }
  options->*member = text;
  return {};
}

using L = LoadOptions;
constexpr Option kDevice = {"device", read_device};
constexpr Option kOptions[] = {
    kDevice,
    {"cuda_graphs", read_switch<&L::cuda_graphs>, false, "use_cuda_graphs"},
    {"shared_device_memory", read_switch<&L::shared_device_memory>, false,
     "use_shared_activation_scratch"},
    {"execution_contexts", read_number<&L::execution_contexts, 1, 64>},
    {"optimization_profile", read_number<&L::optimization_profile, -1, 999>},
    {"blocking_waits", read_switch<&L::blocking_waits>},
    {"warm_up_at_load", read_switch<&L::warm_up_at_load>},
    {"weight_streaming_budget", read_budget},
    {"profile_layers", read_switch<&L::profile_layers>},
    {"runtime_cache", read_folder<&L::runtime_cache>, true},
    {"plugin_libraries", read_libraries, true},
    {"dla_core", read_number<&L::dla_core, 0, 63>},
    {"engine_host_code", read_switch<&L::engine_host_code>, true},
    {"build", read_switch<&L::build>},
    {"engine_folder", read_folder<&L::engine_folder>, true},
};

// Compile specs that are no options; the last two are of Torch-TensorRT's delegate.
constexpr const char* kTargetDevice = "target_device";
constexpr const char* kSpecs[] = {kTargetDevice, "state_inputs",         "device_state",
                                  "partition",   "external_engine_data", "use_shared_engines"};

constexpr size_t kMaxIndices = 10000;

// "0,3".
Status read_indices(const char* spec, const std::string& text, std::vector<size_t>* inputs) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    int64_t index = 0;
    if (!parse_integer(text.substr(begin, comma - begin), &index) || index < 0 ||
        index >= static_cast<int64_t>(kMaxIndices) || inputs->size() == kMaxIndices) {
      return fail(Error::InvalidProgram,
                  "compile spec %s is '%.40s'; expected indices of tensors such as 0,3", spec,
                  text.c_str());
    }
    inputs->push_back(static_cast<size_t>(index));
    begin = comma + 1;
  }
  return {};
}

// Of docs/reference/environment.md, those that are no options.
constexpr const char* kVariables[] = {"CACHE",
                                      "CACHE_SIZE",
                                      "BUILDER",
                                      "PRECISION",
                                      "CUDA",
                                      "CUDART_LIBRARY",
                                      "ANY_GPU",
                                      "ANY_KERNEL",
                                      "PLUGIN",
                                      "RUNNER",
                                      "LOG",
                                      "SIM_FAIL_AFTER",
                                      "TENSORRT_LIBRARY",
                                      "ANY_TENSORRT",
                                      "CMAKE_CONFIG",
                                      "ONNXRUNTIME_LIBRARY"};

// Settings that nobody reads: most are misspelt, and what they ask for would be missed without a
// word. A file may have any number of them, so that one line tells of all.
void report_unknown(const char* kind, const std::vector<const char*>& names) {
  if (names.empty()) return;
  const std::string more =
      names.size() == 1 ? "" : " (and " + std::to_string(names.size() - 1) + " more)";
  log(LogLevel::info,
      "TensorRTBackend: unknown %s '%.60s'%s is ignored: docs/native.md has those that are known",
      kind, names[0], more.c_str());
}

bool is_option(const char* name) {
  return std::any_of(std::begin(kOptions), std::end(kOptions),
                     [&](const Option& option) { return option.is(name); });
}

bool is_spec(const char* name) {
  return std::any_of(std::begin(kSpecs), std::end(kSpecs),
                     [&](const char* known) { return std::strcmp(name, known) == 0; });
}

bool is_variable(const std::string& name) {
  return std::any_of(std::begin(kVariables), std::end(kVariables),
                     [&](const char* known) { return kPrefix + std::string(known) == name; }) ||
         std::any_of(std::begin(kOptions), std::end(kOptions),
                     [&](const Option& option) { return option.variable() == name; });
}

void report_unknown_names(const BackendInitContext& context, ArrayRef<CompileSpec> compile_specs) {
  static std::once_flag told;
  std::call_once(told, [] {
    std::vector<const char*> variables;
    for (const auto& [name, value] : environment()) {
      if (name.rfind(kPrefix, 0) == 0 && !is_variable(name)) variables.push_back(name.c_str());
    }
    report_unknown("environment variable", variables);
  });
  std::vector<const char*> options, specs;
  for (const BackendOption& spec : context.runtime_specs()) {
    if (!is_option(spec.key)) options.push_back(spec.key);
  }
  for (const CompileSpec& spec : compile_specs) {
    if (!is_option(spec.key) && !is_spec(spec.key)) specs.push_back(spec.key);
  }
  report_unknown("load option", options);
  report_unknown("compile spec", specs);
}

}  // namespace

Status read_options(const BackendInitContext& context, ArrayRef<CompileSpec> compile_specs,
                    LoadOptions* options) {
  report_unknown_names(context, compile_specs);
  options->method = const_cast<BackendInitContext&>(context).get_runtime_allocator();
  for (const Option& option : kOptions) {
    TRT_ET_TRY(option.read_into(options, find(option, context, compile_specs)));
  }
  for (const CompileSpec& spec : compile_specs) {
    const std::string text(static_cast<const char*>(spec.value.buffer), spec.value.nbytes);
    if (std::strcmp(spec.key, kTargetDevice) == 0) options->host_planned = text == "cpu";
    if (std::strcmp(spec.key, "state_inputs") == 0) {
      TRT_ET_TRY(read_indices(spec.key, text, &options->state_inputs));
    }
    if (std::strcmp(spec.key, "device_state") == 0) {
      TRT_ET_TRY(read_indices(spec.key, text, &options->device_state));
    }
  }
  return {};
}

Status redirected_device(int* device) {
  LoadOptions wanted;
  TRT_ET_TRY(kDevice.read_into(&wanted, find_for_process(kDevice)));
  *device = wanted.device.value_or(*device);
  return {};
}

Status set_option(const char* name, const std::string& text) {
  const auto known = std::find_if(std::begin(kOptions), std::end(kOptions),
                                  [&](const Option& option) { return option.is(name); });
  if (known == std::end(kOptions)) {
    return fail(Error::NotFound, "no option '%.40s': the header trt_et/options.h lists them", name);
  }
  LoadOptions checked;
  TRT_ET_TRY(known->read_into(&checked, text));
  auto& all = immortal<Settings>();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.values[known->name] = text;
  return {};
}

Status set_options(Span<const BackendOption> backend_options) {
  for (const BackendOption& given : backend_options) {
    TRT_ET_TRY(set_option(given.key, text_of(given.value)));
  }
  return {};
}

}  // namespace trt_et
