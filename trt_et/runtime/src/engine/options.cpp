#include "options.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace trt_et {
namespace {

using executorch::runtime::ArrayRef;
using executorch::runtime::BackendInitContext;
using executorch::runtime::BackendOption;
using executorch::runtime::CompileSpec;
using executorch::runtime::OptionValue;
using executorch::runtime::Span;

struct Name {
  const char* option;
  const char* variable;
  // What the delegate of Torch-TensorRT calls the same.
  const char* theirs = nullptr;

  bool is(const char* key) const {
    return std::strcmp(key, option) == 0 || (theirs != nullptr && std::strcmp(key, theirs) == 0);
  }
};

constexpr Name kDevice = {"device", "TRT_ET_DEVICE"};
constexpr Name kGraphs = {"cuda_graphs", "TRT_ET_CUDA_GRAPHS", "use_cuda_graphs"};
constexpr Name kScratch = {"shared_device_memory", "TRT_ET_SHARED_DEVICE_MEMORY"};
constexpr Name kAllScratch = {"use_shared_activation_scratch",
                              "TRT_ET_USE_SHARED_ACTIVATION_SCRATCH"};
constexpr Name kEngines = {"use_shared_engines", "TRT_ET_USE_SHARED_ENGINES"};
constexpr Name kContexts = {"execution_contexts", "TRT_ET_EXECUTION_CONTEXTS"};
constexpr Name kProfile = {"optimization_profile", "TRT_ET_OPTIMIZATION_PROFILE"};
constexpr Name kWaits = {"blocking_waits", "TRT_ET_BLOCKING_WAITS"};
constexpr Name kBudget = {"weight_streaming_budget", "TRT_ET_WEIGHT_STREAMING_BUDGET"};
constexpr Name kPinned = {"pinned_staging", "TRT_ET_PINNED_STAGING"};
constexpr Name kLayers = {"profile_layers", "TRT_ET_PROFILE_LAYERS"};
constexpr Name kCache = {"runtime_cache", "TRT_ET_RUNTIME_CACHE"};

constexpr Name kPlugins = {"plugin_libraries", "TRT_ET_PLUGIN_LIBRARIES"};
constexpr Name kDla = {"dla_core", "TRT_ET_DLA_CORE"};
constexpr Name kHostCode = {"engine_host_code", "TRT_ET_ENGINE_HOST_CODE"};

constexpr const Name* kAll[] = {&kDevice,   &kGraphs,  &kScratch, &kAllScratch, &kEngines,
                                &kContexts, &kProfile, &kWaits,   &kBudget,     &kPinned,
                                &kLayers,   &kCache,   &kPlugins, &kDla,        &kHostCode};

// A file names no folder that kernels are read from, no library, and runs no code on the host.
bool is_for_users_only(const Name& name) {
  return &name == &kCache || &name == &kPlugins || &name == &kHostCode;
}

struct Settings {
  std::mutex mutex;
  std::map<std::string, std::string> values;
};

Settings& settings() {
  static auto* instance = new Settings;
  return *instance;
}

std::string text_of(const OptionValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "1" : "0";
  if (const auto* number = std::get_if<int>(&value)) return std::to_string(*number);
  const auto* text =
      std::get_if<std::array<char, executorch::runtime::kMaxOptionValueLength>>(&value);
  return text == nullptr ? "" : std::string(text->data(), strnlen(text->data(), text->size()));
}

// What the user says of one option for the whole process; empty: nothing.
std::string find_for_process(const Name& name) {
  {
    Settings& all = settings();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.values.find(name.option);
    if (found != all.values.end() && !found->second.empty()) return found->second;
  }
  const char* value = std::getenv(name.variable);
  return value == nullptr ? "" : value;
}

// What the user says of one option; empty: nothing.
std::string find(const Name& name, const BackendInitContext& context,
                 ArrayRef<CompileSpec> compile_specs) {
  for (const BackendOption& option : context.runtime_specs()) {
    if (name.is(option.key)) return text_of(option.value);
  }
  std::string value = find_for_process(name);
  if (!value.empty() || is_for_users_only(name)) return value;
  for (const CompileSpec& spec : compile_specs) {
    if (!name.is(spec.key)) continue;
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

Status bad(const Name& name, const std::string& text, const char* expected) {
  return fail(Error::InvalidArgument, "option %s (%s) is '%.40s'; expected %s", name.option,
              name.variable, text.c_str(), expected);
}

Status read_device(const std::string& text, std::optional<int>* device) {
  if (text.empty()) return {};
  int64_t index = 0;
  const bool prefixed = text.rfind("cuda:", 0) == 0;
  if (!parse_integer(prefixed ? text.substr(5) : text, &index) || index < 0 || index > 127) {
    return bad(kDevice, text, "a GPU such as 1 or cuda:1");
  }
  *device = static_cast<int>(index);
  return {};
}

Status read_switch(const Name& name, const std::string& text, bool* value) {
  const bool on = text == "1" || text == "on" || text == "true";
  const bool off = text == "0" || text == "off" || text == "false";
  if (!text.empty() && !on && !off) return bad(name, text, "0 or 1");
  if (!text.empty()) *value = on;
  return {};
}

Status read_budget(const std::string& text, std::optional<int64_t>* budget) {
  if (text.empty()) return {};
  int64_t bytes = -1;
  if (text != "auto" && (!parse_integer(text, &bytes) || bytes < -1)) {
    return bad(kBudget, text, "a number of bytes, or auto");
  }
  *budget = bytes;
  return {};
}

// "0,3".
Status read_indices(const char* spec, const std::string& text, std::vector<size_t>* inputs) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    int64_t index = 0;
    if (!parse_integer(text.substr(begin, comma - begin), &index) || index < 0 || index > 9999) {
      return fail(Error::InvalidProgram,
                  "compile spec %s is '%.40s'; expected indices of tensors such as 0,3", spec,
                  text.c_str());
    }
    inputs->push_back(static_cast<size_t>(index));
    begin = comma + 1;
  }
  return {};
}

// A number from `low` to `high`.
template <typename T>
Status read_number(const Name& name, const std::string& text, int64_t low, int64_t high,
                   const char* expected, T* value) {
  int64_t number = 0;
  if (text.empty()) return {};
  if (!parse_integer(text, &number) || number < low || number > high) {
    return bad(name, text, expected);
  }
  *value = static_cast<int>(number);
  return {};
}

Status read_size(const Name& name, const std::string& text, size_t* size) {
  int64_t bytes = 0;
  if (text.empty()) return {};
  if (!parse_integer(text, &bytes) || bytes < 0) return bad(name, text, "a number of bytes");
  *size = static_cast<size_t>(bytes);
  return {};
}

Status read_core(const std::string& text, int* core) {
  int64_t index = -1;
  if (text.empty()) return {};
  if (!parse_integer(text, &index) || index < 0 || index > 63) {
    return bad(kDla, text, "a DLA core such as 0");
  }
  *core = static_cast<int>(index);
  return {};
}

// Every path is absolute: what the current folder holds is not loaded.
Status read_libraries(const std::string& text, std::string* paths) {
  for (size_t begin = 0; !text.empty() && begin <= text.size();) {
    if (text[begin] != '/') return bad(kPlugins, text, "absolute paths, separated by ':'");
    begin = std::min(text.find(':', begin), text.size()) + 1;
  }
  *paths = text;
  return {};
}

Status parse(const Name& name, const std::string& text, LoadOptions* options) {
  if (&name == &kDevice) return read_device(text, &options->device);
  if (&name == &kGraphs) return read_switch(name, text, &options->cuda_graphs);
  if (&name == &kScratch) return read_switch(name, text, &options->shared_device_memory);
  if (&name == &kPinned) return read_size(name, text, &options->pinned_staging);
  if (&name == &kLayers) return read_switch(name, text, &options->profile_layers);
  if (&name == &kAllScratch) return read_switch(name, text, &options->shared_activation_scratch);
  if (&name == &kEngines) return read_switch(name, text, &options->shared_engines);
  if (&name == &kWaits) return read_switch(name, text, &options->blocking_waits);
  if (&name == &kContexts) {
    return read_number(name, text, 1, 64, "1 to 64", &options->execution_contexts);
  }
  if (&name == &kProfile) {
    return read_number(name, text, -1, 999, "the index of an optimization profile, or -1",
                       &options->optimization_profile);
  }
  if (&name == &kBudget) return read_budget(text, &options->weight_streaming_budget);
  if (&name == &kPlugins) return read_libraries(text, &options->plugin_libraries);
  if (&name == &kDla) return read_core(text, &options->dla_core);
  if (&name == &kHostCode) return read_switch(name, text, &options->engine_host_code);
  if (!text.empty() && text != "off" && text.front() != '/') {
    return bad(name, text, "an absolute path of a folder, or off");
  }
  options->runtime_cache = text;
  return {};
}

}  // namespace

const void* LoadOptions::shared_scratch() const {
  static const char whole_process = 0;
  return shared_activation_scratch ? &whole_process : shared_device_memory ? method : nullptr;
}

Status read_options(const BackendInitContext& context, ArrayRef<CompileSpec> compile_specs,
                    LoadOptions* options) {
  options->method = const_cast<BackendInitContext&>(context).get_runtime_allocator();
  for (const Name* name : kAll) {
    TRT_ET_TRY(parse(*name, find(*name, context, compile_specs), options));
  }
  for (const CompileSpec& spec : compile_specs) {
    const std::string text(static_cast<const char*>(spec.value.buffer), spec.value.nbytes);
    if (std::strcmp(spec.key, "target_device") == 0) options->host_planned = text == "cpu";
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
  std::optional<int> wanted;
  TRT_ET_TRY(read_device(find_for_process(kDevice), &wanted));
  *device = wanted.value_or(*device);
  return {};
}

Status set_options(Span<const BackendOption> backend_options) {
  for (const BackendOption& option : backend_options) {
    const Name* known = nullptr;
    for (const Name* name : kAll) {
      if (name->is(option.key)) known = name;
    }
    if (known == nullptr) {
      return fail(Error::NotFound, "no option '%.40s' (docs/native.md lists them)", option.key);
    }
    LoadOptions checked;
    TRT_ET_TRY(parse(*known, text_of(option.value), &checked));
    Settings& all = settings();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.values[known->option] = text_of(option.value);
  }
  return {};
}

}  // namespace trt_et
