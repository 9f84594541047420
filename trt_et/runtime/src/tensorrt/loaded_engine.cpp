#include "loaded_engine.h"

#include <algorithm>

namespace trt_et::tensorrt {
namespace {

using nvinfer1::Dims;
using nvinfer1::OptProfileSelector;
using nvinfer1::TensorIOMode;

int32_t scalar_type_of(nvinfer1::DataType type) {
  for (const DtypeName& known : kDtypes) {
    if (known.type == type) return known.scalar_type;
  }
  return -1;
}

Status refused(const trt_et_engine_request& request, const Library& library) {
  if (Logger::lacks_memory()) {
    return fail(Error::MemoryAllocationFailed, "no GPU memory for an engine of %zu bytes: %.160s",
                request.size, Logger::reason_text());
  }
  if (Logger::lacks_plugin()) {
    return fail(Error::NotFound,
                "engine needs a plugin; name its library in plugin_libraries: %.160s",
                Logger::reason_text());
  }
  Version built;
  const bool known = Version::parse(request.library_version, &built);
  if (known && !(built == library.version)) {
    return fail(Error::DelegateInvalidCompatibility,
                "engine was built by %s %s, this machine has %s (%.100s): %s", kName,
                built.text().c_str(), library.version.text().c_str(), library.path.c_str(),
                Logger::reason_text());
  }
  return fail(Error::DelegateInvalidCompatibility, "TensorRT %s refuses the engine: %.60s (%s)",
              library.version.text().c_str(), Logger::reason_text(), library.path.c_str());
}

}  // namespace

bool has_unknown_size(const Dims& dims) {
  return std::any_of(dims.d, dims.d + std::max(dims.nbDims, 0), [](auto size) { return size < 0; });
}

Status LoadedEngine::load(const trt_et_engine_request& request,
                          std::unique_ptr<LoadedEngine>* engine) {
  auto loaded = std::make_unique<LoadedEngine>();
  TRT_ET_TRY(open_library(&loaded->library_));
  TRT_ET_TRY(runtime_of(request, &loaded->runtime_));
  TRT_ET_TRY(loaded->deserialize(request));
  TRT_ET_TRY(loaded->set_budget(request.weight_streaming_budget));
  TRT_ET_TRY(loaded->read_tensors(request));
  loaded->kernels_.open(*loaded->engine_, request, loaded->library_->version);
  *engine = std::move(loaded);
  return {};
}

Status LoadedEngine::deserialize(const trt_et_engine_request& request) {
  const std::lock_guard<std::mutex> lock(runtime_->mutex);
  Logger::forget();
  engine_.reset(runtime_->runtime->deserializeCudaEngine(request.bytes, request.size));
  return engine_ == nullptr ? refused(request, *library_) : Status{};
}

// An engine that was built for streaming has TensorRT's automatic budget where nothing is said.
Status LoadedEngine::set_budget(int64_t budget) {
  const bool asked = budget != TRT_ET_NO_BUDGET;
  if (!streams_weights(library_->version)) {
    if (!asked) return {};
    return fail(Error::NotSupported, "weight_streaming_budget needs TensorRT 10.1 or later, not %s",
                library_->version.text().c_str());
  }
  const int64_t streamable = engine_->getStreamableWeightsSize();
  if (streamable <= 0) {
    if (asked) {
      host().log(TRT_ET_LOG_INFO,
                 "weight_streaming_budget: the engine was not built for streaming");
    }
    return {};
  }
  if (!asked || budget == -1) budget = engine_->getWeightStreamingAutomaticBudget();
  if (budget < -1) {  // Of 100ths first: the product of large weights would not fit.
    const int64_t percentage = TRT_ET_PERCENT_BUDGET(budget);
    budget = streamable / 100 * percentage + streamable % 100 * percentage / 100;
  }
  host().log(TRT_ET_LOG_INFO, ("weight streaming: " + std::to_string(budget) + " of " +
                               std::to_string(streamable) + " bytes on the GPU")
                                  .c_str());
  Logger::forget();
  if (!engine_->setWeightStreamingBudgetV2(budget)) {
    return fail(Error::InvalidArgument, "TensorRT refuses weight_streaming_budget %lld: %.120s",
                static_cast<long long>(budget), Logger::reason_text());
  }
  streams_ = budget < streamable;
  return {};
}

Status LoadedEngine::read_tensors(const trt_et_engine_request& request) {
  const int count = engine_->getNbIOTensors();
  if (count < 0 || static_cast<size_t>(count) != request.binding_count) {
    return fail(Error::InvalidProgram, "engine has %d inputs and outputs, its blob names %zu",
                count, request.binding_count);
  }
  tensors_.resize(request.binding_count);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    TRT_ET_TRY(read_tensor(request.bindings[i], &tensors_[i]));
  }
  return {};
}

// The blob and the engine must agree: what the delegate checks of its arguments, it knows from the
// blob.
Status LoadedEngine::read_tensor(const trt_et_binding& binding, EngineTensor* tensor) const {
  const char* name = binding.name;
  const TensorIOMode mode = engine_->getTensorIOMode(name);
  tensor->name = name;
  tensor->is_input = mode == TensorIOMode::kINPUT;
  if (mode == TensorIOMode::kNONE || tensor->is_input != (binding.is_input != 0)) {
    return fail(Error::InvalidProgram, "engine has no %s '%.80s'",
                binding.is_input != 0 ? "input" : "output", name);
  }
  if (engine_->getTensorLocation(name) != nvinfer1::TensorLocation::kDEVICE) {
    return fail(Error::NotSupported, "'%.80s' is a shape on the host, which trt-et does not pass",
                name);
  }
  if (engine_->getTensorFormat(name) != nvinfer1::TensorFormat::kLINEAR) {
    return fail(Error::NotSupported, "'%.80s' wants a memory layout that is not linear", name);
  }
  tensor->scalar_type = scalar_type_of(engine_->getTensorDataType(name));
  tensor->dims = engine_->getTensorShape(name);
  tensor->dynamic = has_unknown_size(tensor->dims);
  if (tensor->scalar_type < 0 || tensor->dims.nbDims < 0) {
    return fail(Error::NotSupported, "'%.80s' has a dtype that ExecuTorch does not have", name);
  }
  if (binding.dtype < 0) return {};
  bool same = binding.dtype == tensor->scalar_type && binding.rank == tensor->dims.nbDims;
  for (int i = 0; same && i < binding.rank; ++i) {
    // A dimension that the blob fixes may be dynamic in the engine.
    same = binding.dims[i] == tensor->dims.d[i] || (binding.dims[i] >= 0 && tensor->dims.d[i] < 0);
  }
  // A 0-d tensor may be [1] to the engine.
  if (binding.dtype == tensor->scalar_type && binding.rank == 0) {
    same = tensor->dims.nbDims == 0 || (tensor->dims.nbDims == 1 && tensor->dims.d[0] == 1);
  }
  if (same) return {};
  return fail(Error::InvalidProgram,
              "blob and engine disagree on '%.60s', which is %s to the engine", name,
              shape_text(tensor->dims.d, tensor->dims.nbDims).c_str());
}

Dims LoadedEngine::profile_shape(const EngineTensor& tensor, int profile, bool largest) const {
  return engine_->getProfileShape(tensor.name.c_str(), profile,
                                  largest ? OptProfileSelector::kMAX : OptProfileSelector::kMIN);
}

Status LoadedEngine::describe(size_t index, trt_et_binding* out) const {
  const EngineTensor* tensor = &tensors_[index];
  *out = trt_et_binding{};
  out->is_input = tensor->is_input ? 1 : 0;
  out->dtype = tensor->scalar_type;
  out->rank = tensor->dims.nbDims;
  out->alias_of = -1;
  for (int i = 0; i < out->rank; ++i) {
    out->dims[i] = out->min_dims[i] = out->max_dims[i] = tensor->dims.d[i];
  }
  for (int p = 0; tensor->is_input && tensor->dynamic && p < profile_count(); ++p) {
    const Dims low = profile_shape(*tensor, p, false), high = profile_shape(*tensor, p, true);
    for (int i = 0; i < out->rank && i < low.nbDims && i < high.nbDims; ++i) {
      out->min_dims[i] = p == 0 ? low.d[i] : std::min<int64_t>(out->min_dims[i], low.d[i]);
      out->max_dims[i] = p == 0 ? high.d[i] : std::max<int64_t>(out->max_dims[i], high.d[i]);
    }
  }
  const char* source =
      tensor->is_input ? nullptr : aliased_input(*engine_, tensor->name.c_str(), library_->version);
  for (size_t i = 0; source != nullptr && i < tensors_.size(); ++i) {
    if (tensors_[i].is_input && tensors_[i].name == source) out->alias_of = static_cast<int>(i);
  }
  return {};
}

bool LoadedEngine::is_dynamic() const {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [](const EngineTensor& tensor) { return tensor.dynamic; });
}

Status LoadedEngine::create_context(uint32_t flags,
                                    std::unique_ptr<nvinfer1::IExecutionContext>* context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Logger::forget();
  context->reset(kernels_.create_context(*engine_, (flags & TRT_ET_CONTEXT_USER_MEMORY) != 0,
                                         is_dynamic() && (flags & TRT_ET_CONTEXT_GRAPHS) != 0));
  if (*context != nullptr) return {};
  const bool may_be_memory = Logger::lacks_memory() || Logger::reason().empty();
  return fail(may_be_memory ? Error::MemoryAllocationFailed : Error::Internal,
              "TensorRT gives no execution context: %.150s", Logger::reason_text());
}

void LoadedEngine::free_context(std::unique_ptr<nvinfer1::IExecutionContext> context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  context.reset();
}

}  // namespace trt_et::tensorrt
