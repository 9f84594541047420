#include "network_build.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "files.h"
#include "lost_bias.h"
#include "onnx_model.h"

namespace trt_et::tensorrt {
namespace {

using nvinfer::DataType;
using nvinfer::Dims;
using nvinfer::OptProfileSelector;

std::string parser_name() {
  return kRtx ? "libtensorrt_onnxparser_rtx.so.1" : "libnvonnxparser.so." + std::to_string(kMajor);
}

Status find_parser(const Library& library, ParserLibrary* parser) {
  if (library.create_builder == nullptr) {
    return fail(Error::NotSupported, "%s here only runs engines: it has no builder (%.100s)",
                library.name().c_str(), library.path.c_str());
  }
  void* handle = nullptr;
  for (const std::string& folder : library_folders(library)) {
    handle = dlopen((folder + parser_name()).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
  }
  using VersionFunction = int32_t (*)();
  const auto version = reinterpret_cast<VersionFunction>(
      handle == nullptr ? nullptr : dlsym(handle, "getNvOnnxParserVersion"));
  if (handle != nullptr) {
    parser->create =
        reinterpret_cast<decltype(parser->create)>(dlsym(handle, "createNvOnnxParser_INTERNAL"));
  }
  if (version == nullptr || parser->create == nullptr) {
    return fail(Error::NotSupported, "%s here has no ONNX parser: install %s beside %.80s",
                library.name().c_str(), parser_name().c_str(), library.path.c_str());
  }
  parser->version = version();
  return {};
}

// TensorRT's progress, passed to the plugin.
class BuildProgress final : public nvinfer::IProgressMonitor {
 public:
  using Report = int (*)(const char* phase, int32_t step, int32_t steps);
  explicit BuildProgress(Report report) : report_(report) {}

  // Whether the plugin has ended the build.
  bool is_ended() const { return ended_; }

  void phaseStart(const char* phase, const char*, int32_t steps) noexcept override {
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      steps_[phase] = steps;
    } catch (...) {  // No memory: the number of steps is not known.
    }
    tell(phase, 0);
  }
  bool stepComplete(const char* phase, int32_t step) noexcept override {
    tell(phase, step + 1);
    return !ended_;
  }
  void phaseFinish(const char*) noexcept override {}

 private:
  void tell(const char* phase, int32_t step) noexcept {
    int32_t steps = 0;
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto known = steps_.find(phase);
      if (known != steps_.end()) steps = known->second;
    } catch (...) {  // Likewise.
    }
    if (report_(phase, step, steps) == 0) ended_ = true;
  }

  const Report report_;
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::map<std::string, int32_t> steps_;  // of each phase
};

// What a build needs; each goes before those above it.
struct Build {
  std::unique_ptr<nvinfer::IBuilder> builder;
  std::unique_ptr<nvinfer::INetworkDefinition> network;
  std::unique_ptr<nvinfer::IBuilderConfig> config;
  std::unique_ptr<nvinfer::OnnxParser> parser;
};

// How an engine is built: the blob's metadata "network", which the plugin has checked.
struct NetworkOptions {
  // min, opt and max of the inputs of one optimization profile.
  using Ranges = std::map<std::string, std::array<std::vector<int64_t>, 3>>;
  std::vector<Ranges> profiles;
  std::optional<int64_t> workspace_size;
  std::optional<int64_t> optimization_level;
  bool weight_streaming = false;
};

// What has no meaning here is logged and left out.
NetworkOptions read_network_options(const trt_et_engine_request& request) {
  NetworkOptions options;
  if (*request.network == '\0') return options;
  const auto network = nlohmann::json::parse(request.network);
  for (const auto& [name, value] : network.items()) {
    if (name == "profiles") {
      value.get_to(options.profiles);
    } else if (name == "workspace_size") {
      options.workspace_size = value.get<int64_t>();
    } else if (name == "optimization_level") {
      options.optimization_level = value.get<int64_t>();
    } else if (name == "weight_streaming") {
      options.weight_streaming = value.get<bool>();
    } else if (name != "weights" && name != "strongly_typed") {
      host().log(TRT_ET_LOG_INFO, ("network: ignores " + name.substr(0, 60)).c_str());
    }
  }
  return options;
}

Status begin(const Library& library, const ParserLibrary& parser, Build* build) {
  Logger::forget();
  void* builder = library.create_builder(&logger(), library.version_number);
  if (builder != nullptr) build->builder.reset(static_cast<nvinfer::IBuilder*>(builder));
  if (build->builder != nullptr) {
    const auto flag = static_cast<int>(nvinfer::NetworkDefinitionCreationFlag::kSTRONGLY_TYPED);
    build->network.reset(build->builder->createNetworkV2(1u << flag));
    build->config.reset(build->builder->createBuilderConfig());
  }
  if (build->network == nullptr || build->config == nullptr) {
    return fail(Error::InvalidState, "the builder of %s does not start: %.130s",
                library.name().c_str(), Logger::reason_text());
  }
  void* made = parser.create(build->network.get(), &logger(), parser.version);
  if (made == nullptr) {
    return fail(Error::InvalidState, "the ONNX parser of %s does not start: %.120s",
                library.name().c_str(), Logger::reason_text());
  }
  build->parser = std::make_unique<nvinfer::OnnxParser>(made);
  return {};
}

// The first error, which names its node.
Status refused(const nvinfer::OnnxParser& parser, const Library& library) {
  if (parser.getNbErrors() == 0) {
    return fail(Error::DelegateInvalidCompatibility, "%s does not parse the network: %.140s",
                library.name().c_str(), Logger::reason_text());
  }
  const nvinfer::ParserError error = parser.getError(0);
  const auto text = [](const char* part) { return part == nullptr ? "" : part; };
  return fail(Error::DelegateInvalidCompatibility, "%s does not take node '%.60s' (%.24s): %.90s",
              library.name().c_str(), text(error.nodeName()), text(error.nodeOperator()),
              text(error.desc()));
}

// The bytes of one initializer.
struct WeightBytes {
  std::string initializer;
  const char* key;
  const void* bytes;
  size_t size;
};

// Weights as files beside a model that is not there, for a parser that only reads files. They go
// with this object.
class WeightFiles {
 public:
  WeightFiles() = default;
  WeightFiles(const WeightFiles&) = delete;
  WeightFiles& operator=(const WeightFiles&) = delete;
  ~WeightFiles();

  Status write(const std::string& folder, const std::vector<WeightBytes>& weights);
  std::string model_path() const { return folder_ + "/model.onnx"; }

 private:
  std::string folder_;  // of ours
};

// Every initializer with external data, with the weight that its location names.
Status find_weights(const trt_et_engine_request& request, std::vector<WeightBytes>* found) {
  std::vector<ExternalInitializer> initializers;
  if (!find_external_initializers(request.bytes, request.size, &initializers)) {
    return fail(Error::InvalidProgram, "the network of %zu bytes is no ONNX model", request.size);
  }
  const trt_et_weight* const begin = request.weights;
  const trt_et_weight* const end = begin + request.weight_count;
  for (const ExternalInitializer& one : initializers) {
    const auto* weight = std::find_if(
        begin, end, [&](const trt_et_weight& known) { return one.location == known.name; });
    if (weight == end) {
      return fail(Error::InvalidProgram, "initializer '%.60s' is in '%.80s', which its blob lacks",
                  one.name.c_str(), one.location.c_str());
    }
    found->push_back({one.name, weight->name, weight->bytes, weight->size});
  }
  return {};
}

Status WeightFiles::write(const std::string& folder, const std::vector<WeightBytes>& weights) {
  if (!folder.empty()) remove_old_parts(folder);
  if (folder.empty() || !make_temporary_folder(folder, &folder_)) {
    return fail(Error::AccessFailed,
                "this TensorRT reads weights from files only, and there is no folder for them "
                "(engine_folder): %.80s",
                folder.empty() ? "none is set" : std::strerror(errno));
  }
  for (const WeightBytes& weight : weights) {
    const std::string path = folder_ + "/" + weight.key;
    std::error_code unknown;
    if (std::filesystem::exists(path, unknown)) continue;  // Of two initializers.
    if (!write_file(path, {{static_cast<const char*>(weight.bytes), weight.size}})) {
      return fail(Error::AccessFailed, "no room for a weight of %zu bytes in %.90s: %.60s",
                  weight.size, folder.c_str(), std::strerror(errno));
    }
  }
  return {};
}

WeightFiles::~WeightFiles() {
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Status parse(const trt_et_engine_request& request, const Library& library,
             const std::string& scratch, Build* build, WeightFiles* files) {
  std::vector<WeightBytes> weights;
  TRT_ET_TRY(find_weights(request, &weights));
  nvinfer::OnnxParser& parser = *build->parser;
  Logger::forget();
  bool parsed = false;
  if (has<nvinfer::slots::OnnxParser_loadInitializer>(library.version)) {
    parsed =
        parser.loadModelProto(request.bytes, request.size, nullptr) &&
        std::all_of(weights.begin(), weights.end(),
                    [&](const WeightBytes& one) {
                      return parser.loadInitializer(one.initializer.c_str(), one.bytes, one.size);
                    }) &&
        parser.parseModelProto();
  } else {
    if (!weights.empty()) TRT_ET_TRY(files->write(scratch, weights));
    parsed = parser.parse(request.bytes, request.size,
                          weights.empty() ? nullptr : files->model_path().c_str());
  }
  return parsed ? Status{} : refused(parser, library);
}

// The delegate's arguments are the network's inputs and outputs. Found before the build, which may
// take long.
Status check_bindings(const trt_et_engine_request& request,
                      const nvinfer::INetworkDefinition& network) {
  const size_t inputs = static_cast<size_t>(network.getNbInputs()),
               outputs = static_cast<size_t>(network.getNbOutputs());
  if (inputs + outputs != request.binding_count) {
    return fail(Error::InvalidProgram, "network has %zu inputs and outputs, its blob names %zu",
                inputs + outputs, request.binding_count);
  }
  for (size_t i = 0; i < request.binding_count; ++i) {
    const trt_et_binding& binding = request.bindings[i];
    const bool is_input = binding.is_input != 0;
    const nvinfer::ITensor* found = nullptr;
    for (size_t at = 0; found == nullptr && at < (is_input ? inputs : outputs); ++at) {
      const auto index = static_cast<int32_t>(at);
      const auto* tensor = is_input ? network.getInput(index) : network.getOutput(index);
      if (std::string(tensor->getName()) == binding.name) found = tensor;
    }
    if (found == nullptr) {
      return fail(Error::InvalidProgram, "network has no %s '%.80s'", is_input ? "input" : "output",
                  binding.name);
    }
    const auto known =
        std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const DtypeName& dtype) {
          return static_cast<int32_t>(dtype.type) == static_cast<int32_t>(found->getType());
        });
    if (known == std::end(kDtypes) || known->scalar_type != binding.dtype) {
      return fail(Error::InvalidProgram, "network and blob disagree on the dtype of '%.80s'",
                  binding.name);
    }
  }
  return {};
}

bool is_dynamic(const trt_et_binding& binding) {
  const int64_t* const end = binding.dims + std::max(binding.rank, 0);
  return std::any_of(binding.dims, end, [](int64_t size) { return size < 0; });
}

Dims dims_of(const int64_t* sizes, size_t rank) {
  Dims dims{static_cast<int32_t>(rank), {}};
  std::copy(sizes, sizes + std::min<size_t>(rank, std::size(dims.d)), dims.d);
  return dims;
}

// Of all dynamic inputs: what the profile names, and the binding's range of the others.
Status add_profile(const trt_et_engine_request& request, const NetworkOptions::Ranges& ranges,
                   Build* build) {
  nvinfer::IOptimizationProfile* profile = build->builder->createOptimizationProfile();
  if (profile == nullptr) return fail(Error::Internal, "TensorRT makes no optimization profile");
  for (size_t i = 0; i < request.binding_count; ++i) {
    const trt_et_binding& binding = request.bindings[i];
    const size_t rank = static_cast<size_t>(std::max(binding.rank, 0));
    if (binding.is_input == 0 || !is_dynamic(binding)) continue;
    const int64_t* sizes[3] = {binding.min_dims, request.opt_dims[i], binding.max_dims};
    const auto named = ranges.find(binding.name);
    for (int32_t which = 0; which < 3; ++which) {
      if (named != ranges.end()) sizes[which] = named->second[static_cast<size_t>(which)].data();
      if (!profile->setDimensions(binding.name, static_cast<OptProfileSelector>(which),
                                  dims_of(sizes[which], rank))) {
        return fail(Error::InvalidProgram, "TensorRT refuses the range of input '%.60s': %.90s",
                    binding.name, Logger::reason_text());
      }
    }
  }
  if (build->config->addOptimizationProfile(profile) >= 0) return {};
  return fail(Error::InvalidProgram, "TensorRT refuses an optimization profile: %.130s",
              Logger::reason_text());
}

Status configure(const trt_et_engine_request& request, const Library& library, Build* build) {
  const NetworkOptions options = read_network_options(request);
  if (options.workspace_size) {
    build->config->setMemoryPoolLimit(nvinfer::MemoryPoolType::kWORKSPACE,
                                      static_cast<size_t>(*options.workspace_size));
  }
  if (options.optimization_level) {
    const int64_t level = *options.optimization_level;
    if (level < 0 || level > std::numeric_limits<int32_t>::max()) {
      return fail(Error::InvalidProgram, "optimization_level is %lld, and TensorRT has 0 to 5",
                  static_cast<long long>(level));
    }
    build->config->setBuilderOptimizationLevel(static_cast<int32_t>(level));
  }
  if (options.weight_streaming) {
    if (!streams_weights(library.version)) {
      return fail(Error::NotSupported, "weight_streaming needs TensorRT 10.1 or later, not %s",
                  library.version.text().c_str());
    }
    build->config->setFlag(nvinfer::BuilderFlag::kWEIGHT_STREAMING);
  }
#if defined(TRT_ET_TENSORRT_RTX)
  // As trt_et/engines/tensorrt_rtx.py.
  const bool dynamic = std::any_of(request.bindings, request.bindings + request.binding_count,
                                   [](const trt_et_binding& one) { return is_dynamic(one); });
  if (!dynamic && !options.weight_streaming) {
    build->config->setFlag(nvinfer::BuilderFlag::kREQUIRE_USER_ALLOCATION);
  }
#endif
  Logger::forget();
  if (options.profiles.empty()) return add_profile(request, {}, build);
  for (const auto& ranges : options.profiles) TRT_ET_TRY(add_profile(request, ranges, build));
  return {};
}

Status build_plan(const Library& library, const BuildProgress& progress, Build* build,
                  std::unique_ptr<nvinfer::IHostMemory>* plan) {
  Logger::forget();
  plan->reset(build->builder->buildSerializedNetwork(*build->network, *build->config));
  if (*plan != nullptr && (*plan)->size() > 0) return {};
  plan->reset();
  if (progress.is_ended()) {
    return fail(Error::InvalidState, "the build was ended by the caller's progress function");
  }
  return fail(
      Logger::lacks_memory() ? Error::MemoryAllocationFailed : Error::DelegateInvalidCompatibility,
      "%s builds no engine of the network: %.140s", library.name().c_str(), Logger::reason_text());
}

}  // namespace

Status open_parser(const Library& library, const ParserLibrary** parser) {
  struct Opened {
    explicit Opened(const Library& library) : result(find_parser(library, &parser)) {}
    ParserLibrary parser;
    const Status result;
  };
  static const auto* opened = new Opened(library);
  *parser = &opened->parser;
  return opened->result;
}

Status build_network(const trt_et_engine_request& request, const Library& library,
                     const ParserLibrary& parser, const std::string& scratch,
                     std::unique_ptr<nvinfer::IHostMemory>* plan) {
  WeightFiles files;
  BuildProgress progress(request.report_build);
  Build build;
  TRT_ET_TRY(begin(library, parser, &build));
  TRT_ET_TRY(parse(request, library, scratch, &build, &files));
  TRT_ET_TRY(check_bindings(request, *build.network));
  TRT_ET_TRY(configure(request, library, &build));
  if (request.report_build != nullptr) build.config->setProgressMonitor(&progress);
  bool build_again = true;
  for (int times = 0; build_again; ++times) {
    TRT_ET_TRY(build_plan(library, progress, &build, plan));
    build_again = false;
#if defined(TRT_ET_TENSORRT_RTX)
    TRT_ET_TRY(keep_biases(library, **plan, times > 0, build.network.get(), &build_again));
#endif
  }
  return {};
}

}  // namespace trt_et::tensorrt
