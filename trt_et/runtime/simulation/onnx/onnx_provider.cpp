// Engines of ONNX payloads: sessions of onnxruntime, on host memory.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/dtype.h"
#include "host_engine.h"
#include "onnxruntime.h"

namespace trt_et {
namespace onnx {
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
    if (theirs == type) return *dtype = ours, true;
  }
  return false;
}

int to_onnx(ScalarType dtype) {
  for (const auto& [ours, theirs] : kTypes) {
    if (ours == dtype) return theirs;
  }
  return 0;
}

// An input or output of the model. A dimension of -1 is dynamic.
struct Tensor {
  std::string name;
  bool is_input = false;
  ScalarType dtype = ScalarType::Float;
  std::vector<int64_t> dims;
};

// The blob and the model must agree: a wrong blob would let the copies overrun memory.
Status check_tensor(const trt_et_binding& binding, const Tensor& tensor) {
  if (binding.dtype < 0) return {};
  bool same = static_cast<ScalarType>(binding.dtype) == tensor.dtype &&
              static_cast<size_t>(binding.rank) == tensor.dims.size();
  for (size_t i = 0; same && i < tensor.dims.size(); ++i) {
    same = binding.dims[i] < 0 || tensor.dims[i] < 0 || binding.dims[i] == tensor.dims[i];
  }
  if (same) return {};
  return fail(
      Error::InvalidProgram,
      "blob and ONNX model disagree on '%.40s': %s %.40s to the blob, %s %.40s to the model",
      binding.name, dtype_name(static_cast<ScalarType>(binding.dtype)),
      shape_text(binding.dims, binding.rank).c_str(), dtype_name(tensor.dtype),
      shape_text(tensor.dims.data(), tensor.dims.size()).c_str());
}

trt_et_binding described(const Tensor& tensor, const trt_et_binding& asked) {
  trt_et_binding out{};
  out.is_input = tensor.is_input ? 1 : 0;
  out.dtype = static_cast<int32_t>(tensor.dtype);
  out.rank = static_cast<int32_t>(tensor.dims.size());
  out.alias_of = -1;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    const bool dynamic = tensor.dims[i] < 0 && asked.dtype >= 0;
    out.dims[i] = dynamic ? asked.dims[i] : tensor.dims[i];
    out.min_dims[i] = dynamic ? asked.min_dims[i] : tensor.dims[i];
    out.max_dims[i] = dynamic ? asked.max_dims[i] : tensor.dims[i];
  }
  return out;
}

// The session is shared by the contexts, which run it at the same time.
class Engine final : public HostEngine {
 public:
  static constexpr const char* kKind = "ONNX";
  using HostEngine::HostEngine;

  static Status probe(const trt_et_engine_request& request) {
    if (std::string_view(request.builder) != "onnx") {
      return {Error::NotSupported, "onnxruntime takes payloads of the builder \"onnx\" only"};
    }
    const Library* library = nullptr;
    return open_library(&library);
  }
  // The model has exactly the request's bindings, and no pointer of the request is kept.
  Status load(const trt_et_engine_request& request) {
    TRT_ET_TRY(open_library(&library_));
    TRT_ET_TRY(create_session(request));
    return read_tensors(request);
  }
  Status create_run(HostRun* run) override {
    *run = [this](std::vector<HostMemory>* memory) { return this->run(memory); };
    return {};
  }

 private:
  Status create_session(const trt_et_engine_request& request);
  Status add_weights(const trt_et_engine_request& request, OrtSessionOptions* options) const;
  Status read_tensor(size_t index, bool is_input, Tensor* tensor) const;
  Status read_tensors(const trt_et_engine_request& request);
  Status run(std::vector<HostMemory>* memory) const;
  Status take_output(const Tensor& tensor, OrtValue* value, HostMemory* memory) const;
  Status check(OrtStatus* returned, const char* what, Error error = Error::Internal) const {
    return library_->check(returned, what, error);
  }

  const Library* library_ = nullptr;
  Owned<OrtSession> session_{nullptr, nullptr};
  std::vector<Tensor> tensors_;  // as the bindings
};

Status Engine::create_session(const trt_et_engine_request& request) {
  OrtSessionOptions* made = nullptr;
  TRT_ET_TRY(check(library_->CreateSessionOptions(&made), "makes no session"));
  const Owned<OrtSessionOptions> options(made, library_->ReleaseSessionOptions);
  TRT_ET_TRY(check(library_->SetSessionGraphOptimizationLevel(options.get(), kOptimization),
                   "takes no optimization level"));
  TRT_ET_TRY(check(library_->SetIntraOpNumThreads(options.get(), 1), "takes no number of threads"));
  TRT_ET_TRY(add_weights(request, options.get()));
  OrtSession* session = nullptr;
  TRT_ET_TRY(check(library_->CreateSessionFromArray(library_->environment, request.bytes,
                                                    request.size, options.get(), &session),
                   "refuses the ONNX model", Error::InvalidProgram));
  session_ = {session, library_->ReleaseSession};
  return {};
}

// The initializers that are not in the model name them as their files.
Status Engine::add_weights(const trt_et_engine_request& request, OrtSessionOptions* options) const {
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
  return check(library_->AddExternalInitializersFromFilesInMemory(
                   options, names.data(), bytes.data(), sizes.data(), names.size()),
               "takes no weights");
}

Status Engine::read_tensor(size_t index, bool is_input, Tensor* tensor) const {
  tensor->is_input = is_input;
  char* name = nullptr;
  const auto get_name = is_input ? library_->SessionGetInputName : library_->SessionGetOutputName;
  TRT_ET_TRY(check(get_name(session_.get(), index, library_->allocator, &name), "tells no name"));
  tensor->name = name;
  TRT_ET_TRY(check(library_->AllocatorFree(library_->allocator, name), "does not free a name"));
  OrtTypeInfo* type = nullptr;
  const auto get_type =
      is_input ? library_->SessionGetInputTypeInfo : library_->SessionGetOutputTypeInfo;
  TRT_ET_TRY(check(get_type(session_.get(), index, &type), "tells no type"));
  const Owned<OrtTypeInfo> owned(type, library_->ReleaseTypeInfo);
  const OrtTensorInfo* info = nullptr;
  TRT_ET_TRY(check(library_->CastTypeInfoToTensorInfo(type, &info), "tells no type"));
  int element = 0;
  size_t rank = 0;
  if (info != nullptr) {  // Null: a sequence, or another type that is no tensor.
    TRT_ET_TRY(check(library_->GetTensorElementType(info, &element), "tells no type"));
    TRT_ET_TRY(check(library_->GetDimensionsCount(info, &rank), "tells no rank"));
  }
  if (!from_onnx(element, &tensor->dtype) || rank > TRT_ET_MAX_RANK) {
    return fail(Error::NotSupported,
                "'%.60s' of the ONNX model has a type (%d) or rank (%zu) that no engine has",
                tensor->name.c_str(), element, rank);
  }
  tensor->dims.resize(rank);
  return check(library_->GetDimensions(info, tensor->dims.data(), rank), "tells no shape");
}

Status Engine::read_tensors(const trt_et_engine_request& request) {
  size_t inputs = 0, outputs = 0;
  TRT_ET_TRY(check(library_->SessionGetInputCount(session_.get(), &inputs), "counts no inputs"));
  TRT_ET_TRY(check(library_->SessionGetOutputCount(session_.get(), &outputs), "counts no outputs"));
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
    bindings.push_back(described(*match, binding));
  }
  return {};
}

Status Engine::run(std::vector<HostMemory>* memory) const {
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
    (void)dense_bytes(tensor.dtype, input.dims.data(), input.dims.size(), &bytes);
    OrtValue* value = nullptr;
    TRT_ET_TRY(check(library_->CreateTensorWithDataAsOrtValue(
                         library_->host_memory, input.address, bytes, input.dims.data(),
                         input.dims.size(), to_onnx(tensor.dtype), &value),
                     "takes no input", Error::InvalidArgument));
    owned.emplace_back(value, library_->ReleaseValue);
    inputs.push_back(value);
    input_names.push_back(tensor.name.c_str());
  }
  std::vector<OrtValue*> outputs(output_names.size());
  OrtStatus* ran =
      library_->Run(session_.get(), nullptr, input_names.data(), inputs.data(), inputs.size(),
                    output_names.data(), outputs.size(), outputs.data());
  for (OrtValue* output : outputs) {
    if (output != nullptr) owned.emplace_back(output, library_->ReleaseValue);
  }
  TRT_ET_TRY(check(ran, "cannot run the model", Error::InvalidArgument));
  for (size_t i = 0, output = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].is_input) continue;
    TRT_ET_TRY(take_output(tensors_[i], outputs[output++], &(*memory)[i]));
  }
  return {};
}

Status Engine::take_output(const Tensor& tensor, OrtValue* value, HostMemory* memory) const {
  OrtTensorInfo* info = nullptr;
  TRT_ET_TRY(check(library_->GetTensorTypeAndShape(value, &info), "tells no shape"));
  const Owned<OrtTensorInfo> owned(info, library_->ReleaseTensorTypeAndShapeInfo);
  size_t rank = 0, bytes = 0;
  TRT_ET_TRY(check(library_->GetDimensionsCount(info, &rank), "tells no rank"));
  memory->dims.resize(rank);
  TRT_ET_TRY(check(library_->GetDimensions(info, memory->dims.data(), rank), "tells no shape"));
  if (rank > TRT_ET_MAX_RANK || !dense_bytes(tensor.dtype, memory->dims.data(), rank, &bytes) ||
      bytes > memory->capacity) {
    return fail(Error::InvalidArgument,
                "output '%.60s' has the shape %.40s, and there is room for %zu bytes",
                tensor.name.c_str(), shape_text(memory->dims.data(), rank).c_str(),
                memory->capacity);
  }
  void* data = nullptr;
  TRT_ET_TRY(check(library_->GetTensorMutableData(value, &data), "has no output"));
  if (bytes > 0) std::memcpy(memory->address, data, bytes);
  return {};
}

}  // namespace
}  // namespace onnx

const trt_et_engine_provider& onnx_provider() {
  static const trt_et_engine_provider table = host_provider_of<onnx::Engine>("ONNX");
  return table;
}

}  // namespace trt_et
