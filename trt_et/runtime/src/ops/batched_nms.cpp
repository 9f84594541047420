#include "batched_nms.h"

#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <limits>
#include <vector>

#include "common/log.h"

namespace trt_et {
namespace {

using executorch::runtime::EValue;
using executorch::runtime::KernelRuntimeContext;
using executorch::runtime::Span;
using executorch::runtime::etensor::BFloat16;
using executorch::runtime::etensor::Half;
using executorch::runtime::etensor::ScalarType;
using executorch::runtime::etensor::Tensor;
using Size = Tensor::SizesType;

constexpr size_t kTensors[] = {0, 1, 5, 6, 7, 8};
constexpr size_t kArguments = 9;

struct Call {
  Tensor boxes, scores;
  double iou_threshold;
  float score_threshold;
  int64_t most;
  Tensor out_boxes, out_scores, out_classes, out_count;
};

struct Candidate {
  float score;
  int64_t index;  // box * classes + class: of equal scores, the first one wins
  int64_t box;
  int64_t label;
};

struct Box {
  float x1, y1, x2, y2, area;
};

template <typename T>
Box box_at(const T* corner) {
  const auto x1 = static_cast<float>(corner[0]), y1 = static_cast<float>(corner[1]);
  const auto x2 = static_cast<float>(corner[2]), y2 = static_cast<float>(corner[3]);
  return {x1, y1, x2, y2, (x2 - x1) * (y2 - y1)};
}

// In float32 and in this order, as torchvision's kernel: neither a NaN nor 0 / 0 is an overlap.
bool overlap(const Box& a, const Box& b, double threshold) {
  const float width = std::max(0.0F, std::min(a.x2, b.x2) - std::max(a.x1, b.x1));
  const float height = std::max(0.0F, std::min(a.y2, b.y2) - std::max(a.y1, b.y1));
  const float both = width * height;
  return both / (a.area + b.area - both) > threshold;
}

template <typename T>
std::vector<Candidate> candidates(const T* scores, int64_t boxes, int64_t classes,
                                  float threshold) {
  std::vector<Candidate> found;
  for (int64_t i = 0; i < boxes * classes; ++i) {
    const auto score = static_cast<float>(scores[i]);
    if (score > threshold) found.push_back({score, i, i / classes, i % classes});
  }
  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.index < b.index;
  });
  return found;
}

template <typename T>
void write_image(const Call& call, int64_t image) {
  const int64_t n = call.scores.size(1), classes = call.scores.size(2);
  const T* boxes = call.boxes.const_data_ptr<T>() + image * n * 4;
  const T* scores = call.scores.const_data_ptr<T>() + image * n * classes;
  T* out_boxes = call.out_boxes.mutable_data_ptr<T>() + image * call.most * 4;
  T* out_scores = call.out_scores.mutable_data_ptr<T>() + image * call.most;
  int64_t* out_classes = call.out_classes.mutable_data_ptr<int64_t>() + image * call.most;

  struct Kept {
    Box box;
    int64_t label;
  };
  std::vector<Kept> kept;
  for (const Candidate& candidate : candidates(scores, n, classes, call.score_threshold)) {
    if (static_cast<int64_t>(kept.size()) == call.most) break;
    const T* corner = boxes + candidate.box * 4;
    const Box box = box_at(corner);
    if (std::any_of(kept.begin(), kept.end(), [&](const Kept& better) {
          return better.label == candidate.label && overlap(better.box, box, call.iou_threshold);
        })) {
      continue;
    }
    std::copy_n(corner, 4, out_boxes + kept.size() * 4);
    out_scores[kept.size()] = scores[candidate.index];
    out_classes[kept.size()] = candidate.label;
    kept.push_back({box, candidate.label});
  }
  const auto count = static_cast<int64_t>(kept.size());
  std::fill(out_boxes + count * 4, out_boxes + call.most * 4, T(0.0F));
  std::fill(out_scores + count, out_scores + call.most, T(0.0F));
  std::fill(out_classes + count, out_classes + call.most, int64_t{-1});
  call.out_count.mutable_data_ptr<int64_t>()[image] = count;
}

Status check_types(const Call& call) {
  const ScalarType dtype = call.boxes.scalar_type();
  if (dtype != ScalarType::Float && dtype != ScalarType::Half && dtype != ScalarType::BFloat16) {
    return fail(Error::InvalidArgument,
                "batched_nms: boxes of dtype %d; expected float32, float16 or bfloat16",
                static_cast<int>(dtype));
  }
  for (const Tensor& tensor : {call.scores, call.out_boxes, call.out_scores}) {
    if (tensor.scalar_type() != dtype) {
      return fail(Error::InvalidArgument,
                  "batched_nms: scores or outputs of dtype %d, boxes of dtype %d; expected one",
                  static_cast<int>(tensor.scalar_type()), static_cast<int>(dtype));
    }
  }
  for (const Tensor& tensor : {call.out_classes, call.out_count}) {
    if (tensor.scalar_type() != ScalarType::Long) {
      return fail(Error::InvalidArgument,
                  "batched_nms: classes or count of dtype %d; expected int64",
                  static_cast<int>(tensor.scalar_type()));
    }
  }
  return {};
}

Status check_shapes(const Call& call) {
  const Tensor &boxes = call.boxes, &scores = call.scores;
  if (boxes.dim() != 3 || scores.dim() != 3 || boxes.size(2) != 4 ||
      boxes.size(0) != scores.size(0) || boxes.size(1) != scores.size(1)) {
    return fail(Error::InvalidArgument,
                "batched_nms: boxes %s and scores %s; expected [batch, n, 4] and "
                "[batch, n, classes]",
                shape_text(boxes.sizes().data(), boxes.dim()).c_str(),
                shape_text(scores.sizes().data(), scores.dim()).c_str());
  }
  for (const Tensor& tensor : {boxes, scores, call.out_boxes, call.out_scores, call.out_classes}) {
    if (!executorch::runtime::is_contiguous_dim_order(tensor.dim_order().data(), tensor.dim())) {
      return fail(Error::InvalidArgument,
                  "batched_nms: boxes, scores or outputs are not contiguous");
    }
  }
  if (call.most < 1 || call.most > std::numeric_limits<Size>::max()) {
    return fail(Error::InvalidArgument,
                "batched_nms: max_output is %" PRId64 "; expected 1 or more", call.most);
  }
  return {};
}

Status resize_outputs(const Call& call) {
  const Size batch = static_cast<Size>(call.boxes.size(0)), most = static_cast<Size>(call.most);
  const Size sizes[] = {batch, most, 4};
  const std::pair<Tensor, size_t> ranks[] = {
      {call.out_boxes, 3}, {call.out_scores, 2}, {call.out_classes, 2}, {call.out_count, 1}};
  for (const auto& [tensor, rank] : ranks) {
    const Error error = executorch::runtime::resize_tensor(tensor, {sizes, rank});
    if (error != Error::Ok) {
      return fail(error, "batched_nms: an output cannot have the shape %s",
                  shape_text(sizes, static_cast<int64_t>(rank)).c_str());
    }
  }
  return {};
}

Status run(Span<EValue*> arguments) {
  bool known = arguments.size() >= kArguments && arguments[2]->isDouble() &&
               arguments[3]->isDouble() && arguments[4]->isInt();
  for (size_t i : kTensors) known = known && arguments[i]->isTensor();
  if (!known) return fail(Error::InvalidProgram, "batched_nms: arguments of other types");
  const auto tensor = [&](size_t i) { return arguments[i]->toTensor(); };
  const Call call{tensor(0),
                  tensor(1),
                  arguments[2]->toDouble(),
                  static_cast<float>(arguments[3]->toDouble()),
                  arguments[4]->toInt(),
                  tensor(5),
                  tensor(6),
                  tensor(7),
                  tensor(8)};
  TRT_ET_TRY(check_types(call));
  TRT_ET_TRY(check_shapes(call));
  TRT_ET_TRY(resize_outputs(call));
  for (int64_t image = 0; image < call.boxes.size(0); ++image) {
    switch (call.boxes.scalar_type()) {
      case ScalarType::Half:
        write_image<Half>(call, image);
        break;
      case ScalarType::BFloat16:
        write_image<BFloat16>(call, image);
        break;
      default:
        write_image<float>(call, image);
    }
  }
  return {};
}

}  // namespace

void batched_nms_out(KernelRuntimeContext& context, Span<EValue*> arguments) {
  clear_last_error();
  const Error error = enter([&] { return run(arguments); });
  if (error != Error::Ok) context.fail(error);
}

void register_batched_nms() {
  // ExecuTorch ends the process at a second kernel of one name.
  for (const auto& kernel : executorch::runtime::get_registered_kernels()) {
    if (std::strcmp(kernel.name_, kBatchedNms) == 0) return;
  }
  const Error error = executorch::runtime::register_kernel(
      executorch::runtime::Kernel(kBatchedNms, batched_nms_out));
  if (error != Error::Ok) {
    (void)report(
        fail(error, "%s: not registered: ExecuTorch's table of kernels is full", kBatchedNms));
  }
}

}  // namespace trt_et
