#include "network.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace trt_et::onnx {
namespace {

// ENABLE_BASIC. The levels above fuse quantize and dequantize into integer kernels, which round
// differently on different processors.
constexpr int kOptimization = 1;

// ONNXTensorElementDataType.
constexpr std::pair<ScalarType, int> kTypes[] = {
    {ScalarType::Float, 1},    {ScalarType::Byte, 2},  {ScalarType::Char, 3},
    {ScalarType::Short, 5},    {ScalarType::Int, 6},   {ScalarType::Long, 7},
    {ScalarType::Bool, 9},     {ScalarType::Half, 10}, {ScalarType::Double, 11},
    {ScalarType::BFloat16, 16}};

bool from_onnx(int type, ScalarType* dtype) {
  for (const auto& [ours, theirs] : kTypes) {
    if (theirs == type) *dtype = ours;
    if (theirs == type) return true;
  }
  return false;
}

int to_onnx(ScalarType dtype) {
  for (const auto& [ours, theirs] : kTypes) {
    if (ours == dtype) return theirs;
  }
  return 0;
}

std::string shape_text(const int64_t* dims, size_t rank) {
  std::string text = "[";
  for (size_t i = 0; i < rank; ++i) text += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  return text.substr(0, 40) + "]";
}

// The blob and the model must agree: a wrong blob would let the copies overrun memory.
Status check_tensor(const trt_et_binding& binding, const Tensor& tensor) {
  if (binding.dtype < 0) return {};
  bool same = static_cast<ScalarType>(binding.dtype) == tensor.dtype &&
              static_cast<size_t>(binding.rank) == tensor.dims.size();
  for (size_t i = 0; same && i < tensor.dims.size(); ++i) {
    same = binding.dims[i] < 0 || tensor.dims[i] < 0 || binding.dims[i] == tensor.dims[i];
  }
  if (same) return {};
  return fail(Error::InvalidProgram,
              "blob and ONNX model disagree on '%.40s': %s %s to the blob, %s %s to the model",
              binding.name, dtype_name(static_cast<ScalarType>(binding.dtype)),
              shape_text(binding.dims, static_cast<size_t>(std::max(binding.rank, 0))).c_str(),
              dtype_name(tensor.dtype), shape_text(tensor.dims.data(), tensor.dims.size()).c_str());
}

}  // namespace

Status Network::load(const trt_et_engine_request& request, std::unique_ptr<Network>* network) {
  const Library* library = nullptr;
  TRT_ET_TRY(open_library(&library));
  std::unique_ptr<Network> loaded(new Network(*library));
  TRT_ET_TRY(loaded->create_session(request));
  TRT_ET_TRY(loaded->read_tensors(request));
  *network = std::move(loaded);
  return {};
}

Status Network::create_session(const trt_et_engine_request& request) {
  constexpr Error kError = Error::Internal;
  OrtSessionOptions* made = nullptr;
  TRT_ET_TRY(library_.check(library_.CreateSessionOptions(&made), kError, "makes no session"));
  const Owned<OrtSessionOptions> options(made, library_.ReleaseSessionOptions);
  TRT_ET_TRY(library_.check(library_.SetSessionGraphOptimizationLevel(options.get(), kOptimization),
                            kError, "takes no optimization level"));
  TRT_ET_TRY(library_.check(library_.SetIntraOpNumThreads(options.get(), 1), kError,
                            "takes no number of threads"));
  TRT_ET_TRY(add_weights(request, options.get()));
  OrtSession* session = nullptr;
  TRT_ET_TRY(library_.check(library_.CreateSessionFromArray(library_.environment, request.bytes,
                                                            request.size, options.get(), &session),
                            Error::InvalidProgram, "refuses the ONNX model"));
  session_.reset(session);
  return {};
}

// The initializers that are not in the model name them as their files.
Status Network::add_weights(const trt_et_engine_request& request,
                            OrtSessionOptions* options) const {
  if (request.weight_count == 0) return {};
  const char* problem = request.read_weights(&request);
  if (problem != nullptr) return fail(Error::InvalidProgram, "%s", problem);
  std::vector<const char*> names;
  std::vector<char*> bytes;
  std::vector<size_t> sizes;
  for (size_t i = 0; i < request.weight_count; ++i) {
    const trt_et_weight& weight = request.weights[i];
    names.push_back(weight.name);
    bytes.push_back(static_cast<char*>(const_cast<void*>(weight.bytes)));  // It only reads.
    sizes.push_back(weight.size);
  }
  return library_.check(library_.AddExternalInitializersFromFilesInMemory(
                            options, names.data(), bytes.data(), sizes.data(), names.size()),
                        Error::Internal, "takes no weights");
}

Status Network::read_tensor(size_t index, bool is_input, Tensor* tensor) const {
  constexpr Error kError = Error::Internal;
  tensor->is_input = is_input;
  char* name = nullptr;
  const auto get_name = is_input ? library_.SessionGetInputName : library_.SessionGetOutputName;
  TRT_ET_TRY(library_.check(get_name(session_.get(), index, library_.allocator, &name), kError,
                            "tells no name"));
  tensor->name = name;
  TRT_ET_TRY(library_.check(library_.AllocatorFree(library_.allocator, name), kError,
                            "does not free a name"));
  OrtTypeInfo* type = nullptr;
  const auto get_type =
      is_input ? library_.SessionGetInputTypeInfo : library_.SessionGetOutputTypeInfo;
  TRT_ET_TRY(library_.check(get_type(session_.get(), index, &type), kError, "tells no type"));
  const Owned<OrtTypeInfo> owned(type, library_.ReleaseTypeInfo);
  const OrtTensorInfo* info = nullptr;
  TRT_ET_TRY(
      library_.check(library_.CastTypeInfoToTensorInfo(type, &info), kError, "tells no type"));
  int element = 0;
  size_t rank = 0;
  if (info != nullptr) {  // Null: a sequence, or another type that is no tensor.
    TRT_ET_TRY(
        library_.check(library_.GetTensorElementType(info, &element), kError, "tells no type"));
    TRT_ET_TRY(library_.check(library_.GetDimensionsCount(info, &rank), kError, "tells no rank"));
  }
  if (!from_onnx(element, &tensor->dtype) || rank > TRT_ET_MAX_RANK) {
    return fail(Error::NotSupported,
                "'%.60s' of the ONNX model has a type (%d) or rank (%zu) that no engine has",
                tensor->name.c_str(), element, rank);
  }
  tensor->dims.resize(rank);
  return library_.check(library_.GetDimensions(info, tensor->dims.data(), rank), kError,
                        "tells no shape");
}

Status Network::read_tensors(const trt_et_engine_request& request) {
  size_t inputs = 0, outputs = 0;
  TRT_ET_TRY(library_.check(library_.SessionGetInputCount(session_.get(), &inputs), Error::Internal,
                            "counts no inputs"));
  TRT_ET_TRY(library_.check(library_.SessionGetOutputCount(session_.get(), &outputs),
                            Error::Internal, "counts no outputs"));
  if (inputs + outputs != request.binding_count) {
    return fail(Error::InvalidProgram,
                "blob has %zu bindings, its ONNX model %zu inputs and %zu outputs",
                request.binding_count, inputs, outputs);
  }
  std::vector<Tensor> found(inputs + outputs);
  for (size_t i = 0; i < found.size(); ++i) {
    const bool is_input = i < inputs;
    TRT_ET_TRY(read_tensor(is_input ? i : i - inputs, is_input, &found[i]));
  }
  for (size_t i = 0; i < request.binding_count; ++i) {
    const trt_et_binding& binding = request.bindings[i];
    const auto match = std::find_if(found.begin(), found.end(), [&](const Tensor& tensor) {
      return tensor.is_input == (binding.is_input != 0) && tensor.name == binding.name;
    });
    if (match == found.end()) {
      return fail(Error::InvalidProgram, "ONNX model has no %s '%.80s'",
                  binding.is_input != 0 ? "input" : "output", binding.name);
    }
    TRT_ET_TRY(check_tensor(binding, *match));
    tensors_.push_back(*match);
  }
  return {};
}

Status Network::run(std::vector<HostMemory>* memory) const {
  std::vector<const char*> input_names, output_names;
  std::vector<Owned<OrtValue>> owned;
  std::vector<const OrtValue*> inputs;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    if (!tensor.is_input) {
      output_names.push_back(tensor.name.c_str());
      continue;
    }
    const HostMemory& input = (*memory)[i];
    size_t bytes = 0;
    if (!dense_bytes(tensor.dtype, input.dims.data(), input.dims.size(), &bytes)) {
      return fail(Error::InvalidArgument, "input '%.60s' has an impossible shape",
                  tensor.name.c_str());
    }
    OrtValue* value = nullptr;
    TRT_ET_TRY(library_.check(library_.CreateTensorWithDataAsOrtValue(
                                  library_.host_memory, input.address, bytes, input.dims.data(),
                                  input.dims.size(), to_onnx(tensor.dtype), &value),
                              Error::InvalidArgument, "takes no input"));
    owned.emplace_back(value, library_.ReleaseValue);
    inputs.push_back(value);
    input_names.push_back(tensor.name.c_str());
  }
  std::vector<OrtValue*> outputs(output_names.size());
  OrtStatus* ran = library_.Run(session_.get(), nullptr, input_names.data(), inputs.data(),
                                inputs.size(), output_names.data(), outputs.size(), outputs.data());
  for (OrtValue* output : outputs) {
    if (output != nullptr) owned.emplace_back(output, library_.ReleaseValue);
  }
  TRT_ET_TRY(library_.check(ran, Error::InvalidArgument, "cannot run the model"));
  for (size_t i = 0, output = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].is_input) continue;
    TRT_ET_TRY(take_output(tensors_[i], outputs[output++], &(*memory)[i]));
  }
  return {};
}

Status Network::take_output(const Tensor& tensor, OrtValue* value, HostMemory* memory) const {
  constexpr Error kError = Error::Internal;
  OrtTensorInfo* info = nullptr;
  TRT_ET_TRY(
      library_.check(library_.GetTensorTypeAndShape(value, &info), kError, "tells no shape"));
  const Owned<OrtTensorInfo> owned(info, library_.ReleaseTensorTypeAndShapeInfo);
  size_t rank = 0, bytes = 0;
  TRT_ET_TRY(library_.check(library_.GetDimensionsCount(info, &rank), kError, "tells no rank"));
  memory->dims.resize(rank);
  TRT_ET_TRY(library_.check(library_.GetDimensions(info, memory->dims.data(), rank), kError,
                            "tells no shape"));
  if (rank > TRT_ET_MAX_RANK || !dense_bytes(tensor.dtype, memory->dims.data(), rank, &bytes) ||
      bytes > memory->capacity) {
    return fail(
        Error::InvalidArgument, "output '%.60s' has the shape %s, and there is room for %zu bytes",
        tensor.name.c_str(), shape_text(memory->dims.data(), rank).c_str(), memory->capacity);
  }
  void* data = nullptr;
  TRT_ET_TRY(library_.check(library_.GetTensorMutableData(value, &data), kError, "has no output"));
  if (bytes > 0) std::memcpy(memory->address, data, bytes);
  return {};
}

}  // namespace trt_et::onnx
