#include "run_context.h"

#include <algorithm>

namespace trt_et::tensorrt {

using nvinfer1::Dims;

Status RunContext::create(LoadedEngine& engine, uint32_t flags,
                          std::unique_ptr<RunContext>* context) {
  std::unique_ptr<RunContext> created(new RunContext(engine));
  for (const EngineTensor& tensor : engine.tensors()) {
    created->data_dependent_.push_back(tensor.is_input ? nullptr
                                                       : std::make_unique<DataDependentOutput>());
  }
  TRT_ET_TRY(engine.create_context(flags, &created->context_));
  *context = std::move(created);
  return {};
}

Status RunContext::set_input_shape(size_t index, const int64_t* dims, int32_t rank) {
  const EngineTensor& tensor = engine_.tensors()[index];
  Dims shape{};
  // A 0-d tensor may be [1] to the engine.
  const bool scalar = rank == 0 && tensor.dims.nbDims == 1;
  if (!scalar && rank != tensor.dims.nbDims) {
    return fail(Error::InvalidArgument, "input '%.60s' has rank %d, expected %d",
                tensor.name.c_str(), rank, tensor.dims.nbDims);
  }
  shape.nbDims = tensor.dims.nbDims;
  if (scalar) shape.d[0] = 1;
  for (int32_t i = 0; i < rank; ++i) shape.d[i] = dims[i];
  shapes_[index] = shape;
  return {};
}

bool RunContext::fits(int profile) const {
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const EngineTensor& tensor = engine_.tensors()[i];
    if (!tensor.is_input || !tensor.dynamic) continue;
    const Dims low = engine_.profile_shape(tensor, profile, false);
    const Dims high = engine_.profile_shape(tensor, profile, true);
    for (int d = 0; d < shapes_[i].nbDims; ++d) {
      if (shapes_[i].d[d] < low.d[d] || shapes_[i].d[d] > high.d[d]) return false;
    }
  }
  return true;
}

// How much the profile takes at most: its kernels are chosen for about that.
double RunContext::volume(int profile) const {
  double volume = 1;
  for (const EngineTensor& tensor : engine_.tensors()) {
    if (!tensor.is_input || !tensor.dynamic) continue;
    const Dims high = engine_.profile_shape(tensor, profile, true);
    for (int d = 0; d < high.nbDims; ++d) volume *= static_cast<double>(high.d[d]);
  }
  return volume;
}

// The caller's, or the smallest that fits; of equal ones that in use, or the first.
Status RunContext::choose_profile(void* stream) {
  const int count = engine_.profile_count();
  int found = count;
  for (int profile = 0; profile < count; ++profile) {
    const bool wanted = pinned_ < 0 || profile == pinned_;
    if (!wanted || !fits(profile)) continue;
    const bool equal = found < count && volume(profile) == volume(found);
    if (found == count || volume(profile) < volume(found) || (equal && profile == profile_)) {
      found = profile;
    }
  }
  if (found == profile_) return {};
  if (found == count) {
    std::string shapes;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const EngineTensor& tensor = engine_.tensors()[i];
      if (tensor.is_input && tensor.dynamic) {
        shapes += " " + tensor.name.substr(0, 30) + shape_text(shapes_[i].d, shapes_[i].nbDims);
      }
    }
    if (pinned_ >= 0) {
      return fail(Error::InvalidArgument,
                  "optimization profile %d, which was asked for, takes no%s", pinned_,
                  shapes.c_str());
    }
    return fail(Error::InvalidArgument, "none of the engine's %d optimization profiles takes%s",
                count, shapes.c_str());
  }
  Logger::forget();
  if (!context_->setOptimizationProfileAsync(found, static_cast<cudaStream_t>(stream))) {
    return fail(Error::Internal, "TensorRT does not change to optimization profile %d: %.120s",
                found, Logger::reason_text());
  }
  profile_ = found;
  return {};
}

Status RunContext::set_shapes() {
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const EngineTensor& tensor = engine_.tensors()[i];
    if (!tensor.is_input || !tensor.dynamic) continue;
    if (!context_->setInputShape(tensor.name.c_str(), shapes_[i])) {
      return fail(Error::InvalidArgument, "TensorRT refuses shape %s of input '%.60s': %.100s",
                  shape_text(shapes_[i].d, shapes_[i].nbDims).c_str(), tensor.name.c_str(),
                  Logger::reason_text());
    }
  }
  if (context_->inferShapes(0, nullptr) == 0) return {};
  return fail(Error::Internal, "TensorRT cannot infer the output shapes: %.150s",
              Logger::reason_text());
}

Status RunContext::find_data_dependent_outputs() {
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const EngineTensor& tensor = engine_.tensors()[i];
    if (tensor.is_input) continue;
    const bool depends_on_data = has_unknown_size(context_->getTensorShape(tensor.name.c_str()));
    data_dependent_[i]->notified = false;
    if (depends_on_data == data_dependent_[i]->attached) continue;
    data_dependent_[i]->attached = depends_on_data;
    if (!context_->setOutputAllocator(tensor.name.c_str(),
                                      depends_on_data ? data_dependent_[i].get() : nullptr)) {
      return fail(Error::Internal, "TensorRT takes no allocator for output '%.60s'",
                  tensor.name.c_str());
    }
  }
  return {};
}

Status RunContext::prepare(void* stream) {
  Logger::forget();
  TRT_ET_TRY(choose_profile(stream));
  TRT_ET_TRY(set_shapes());
  engine_.kernels().expect_kernels();
  return find_data_dependent_outputs();
}

Status RunContext::output_shape(size_t index, int64_t* dims, int32_t* rank) {
  const std::string& name = engine_.tensors()[index].name;
  const DataDependentOutput& output = *data_dependent_[index];
  const Dims shape = output.notified ? output.shape : context_->getTensorShape(name.c_str());
  if (shape.nbDims < 0 || shape.nbDims > TRT_ET_MAX_RANK) {
    return fail(Error::Internal, "TensorRT does not know the shape of output '%.60s'",
                name.c_str());
  }
  *rank = shape.nbDims;
  for (int i = 0; i < shape.nbDims; ++i) {
    dims[i] = shape.d[i];
    if (shape.d[i] < 0) *rank = -1;
  }
  return {};
}

Status RunContext::set_address(size_t index, void* address, size_t capacity) {
  const std::string& name = engine_.tensors()[index].name;
  if (data_dependent_[index] != nullptr) {
    data_dependent_[index]->address = address;
    data_dependent_[index]->capacity = capacity;
  }
  Logger::forget();
  if (context_->setTensorAddress(name.c_str(), address)) return {};
  return fail(Error::InvalidArgument, "TensorRT refuses address %p of '%.60s': %.100s", address,
              name.c_str(), Logger::reason_text());
}

Status RunContext::enqueue(void* stream) {
  Logger::forget();
  if (context_->enqueueV3(static_cast<cudaStream_t>(stream))) return {};
  return fail(Error::Internal, "TensorRT cannot queue the engine: %.160s", Logger::reason_text());
}

Status RunContext::check_capture(void* stream) {
  if (kRtx && engine_.is_dynamic()) {
    // Of a shape that it has not met, TensorRT-RTX runs fallback kernels until others are compiled
    // beside the runs. Its own graphs know when.
    return fail(Error::NotSupported, "TensorRT-RTX records graphs of dynamic shapes itself");
  }
  if (engine_.streams()) {
    return fail(Error::NotSupported, "its weights are streamed, which no graph can hold");
  }
  if (is_stream_capturable(*context_, static_cast<cudaStream_t>(stream))) return {};
  return fail(Error::NotSupported, "TensorRT says that its runs cannot be captured");
}

Status RunContext::set_profile(int profile) {
  if (profile >= engine_.profile_count()) {
    return fail(Error::InvalidArgument,
                "optimization_profile is %d, but the engine has %d profiles", profile,
                engine_.profile_count());
  }
  pinned_ = profile;
  return {};
}

Status RunContext::set_memory(void* memory, size_t bytes) {
  context_->setDeviceMemoryV2(memory, static_cast<int64_t>(bytes));
  return {};
}

Status RunContext::profile_layers(void (*report)(void*, const char*, float), void* user) {
  times_.report = report;
  times_.user = user;
  context_->setProfiler(report == nullptr ? nullptr : &times_);
  context_->setEnqueueEmitsProfile(true);
  return {};
}

}  // namespace trt_et::tensorrt
