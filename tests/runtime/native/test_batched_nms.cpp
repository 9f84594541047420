// The kernel that programs find: a right answer, and calls that it must refuse.
#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "common/status.h"
#include "ops/batched_nms.h"
#include "owned_tensor.h"
#include "tests.h"

using namespace trt_et;

namespace {

using executorch::runtime::EValue;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Two images of three boxes and two classes, at most two results.
struct NmsCall {
  std::vector<float> box_data = {0, 0, 4, 4, 0, 0, 4, 3, 9, 9, 10, 10,  //
                                 0, 0, 4, 4, 0, 0, 4, 4, 0, 0, 4,  4};
  std::vector<float> score_data = {0.5F, 0, 0.9F, 0, 0, 0.7F, kNan, 0, 0, 0, 0, 0};
  std::vector<float> out_box_data = std::vector<float>(16, 7), out_score_data{7, 7, 7, 7};
  std::vector<int64_t> class_data{7, 7, 7, 7}, count_data{7, 7};
  OwnedTensor boxes{{2, 3, 4}, box_data.data()}, scores{{2, 3, 2}, score_data.data()};
  EValue iou{0.5}, above{0.1}, most{int64_t{2}};
  OwnedTensor out_boxes{{2, 2, 4}, out_box_data.data()};
  OwnedTensor out_scores{{2, 2}, out_score_data.data()};
  OwnedTensor classes{{2, 2}, class_data.data(), ScalarType::Long};
  OwnedTensor count{{2}, count_data.data(), ScalarType::Long};
  size_t arguments = 9;

  Error run() {
    EValue* values[] = {&boxes.value,     &scores.value,     &iou,           &above,      &most,
                        &out_boxes.value, &out_scores.value, &classes.value, &count.value};
    const auto kernel = executorch::runtime::get_op_function_from_registry(kBatchedNms);
    CHECK(kernel.ok());
    executorch::runtime::KernelRuntimeContext context;
    (*kernel)(context, {values, arguments});
    return context.failure_state();
  }

  void fails(Error error, const char* reason) {
    CHECK(run() == error);
    CHECK(std::string(last_error_text()).find(reason) != std::string::npos);
    CHECK(out_score_data[0] == 7 && class_data[0] == 7 && count_data[0] == 7);
  }
};

void test_answer() {
  NmsCall call;
  CHECK(call.run() == Error::Ok);
  // The first box overlaps the second one by 12 of 16; the third one is of another class.
  CHECK(call.out_box_data ==
        std::vector<float>({0, 0, 4, 3, 9, 9, 10, 10, 0, 0, 0, 0, 0, 0, 0, 0}));
  CHECK(call.out_score_data == std::vector<float>({0.9F, 0.7F, 0, 0}));
  CHECK(call.class_data == std::vector<int64_t>({0, 1, -1, -1}));
  CHECK(call.count_data == std::vector<int64_t>({2, 0}));
  // A program of a dynamic batch: memory for two images, one given.
  NmsCall one;
  one.boxes = OwnedTensor({1, 3, 4}, one.box_data.data());
  one.scores = OwnedTensor({1, 3, 2}, one.score_data.data());
  CHECK(one.run() == Error::Ok);
  CHECK(one.out_boxes.impl->size(0) == 1 && one.count.impl->size(0) == 1);
  CHECK(one.count_data == std::vector<int64_t>({2, 7}));
}

// The boxes and classes of one image that stay, best first, of 8 at most.
template <typename T>
std::vector<std::pair<size_t, int64_t>> kept(const std::vector<std::vector<float>>& boxes,
                                             const std::vector<std::vector<float>>& scores) {
  constexpr int32_t kMost = 8;
  const auto n = static_cast<int32_t>(boxes.size()),
             classes = static_cast<int32_t>(scores[0].size());
  constexpr ScalarType kType = executorch::runtime::CppTypeToScalarType<T>::value;
  std::vector<T> box_data, score_data, out_boxes(kMost * 4), out_scores(kMost);
  std::vector<int64_t> out_classes(kMost), out_count(1);
  for (const auto& box : boxes) box_data.insert(box_data.end(), box.begin(), box.end());
  for (const auto& score : scores) score_data.insert(score_data.end(), score.begin(), score.end());
  NmsCall call;
  call.boxes = OwnedTensor({1, n, 4}, box_data.data(), kType);
  call.scores = OwnedTensor({1, n, classes}, score_data.data(), kType);
  call.most = EValue(int64_t{kMost});
  call.above = EValue(0.25);
  call.out_boxes = OwnedTensor({1, kMost, 4}, out_boxes.data(), kType);
  call.out_scores = OwnedTensor({1, kMost}, out_scores.data(), kType);
  call.classes = OwnedTensor({1, kMost}, out_classes.data(), ScalarType::Long);
  call.count = OwnedTensor({1}, out_count.data(), ScalarType::Long);
  CHECK(call.run() == Error::Ok);
  std::vector<std::pair<size_t, int64_t>> found;
  for (size_t i = 0; i < static_cast<size_t>(out_count[0]); ++i) {
    const auto label = static_cast<size_t>(out_classes[i]);
    size_t box = 0;
    while (!std::equal(&out_boxes[4 * i], &out_boxes[4 * i] + 4, &box_data[4 * box])) ++box;
    CHECK(static_cast<float>(out_scores[i]) == static_cast<float>(T(scores[box][label])));
    found.emplace_back(box, out_classes[i]);
  }
  return found;
}

// By torchvision's rule: of boxes of one class that overlap by more than 0.5, the best stays.
template <typename T>
void test_rule() {
  using Found = std::vector<std::pair<size_t, int64_t>>;
  const std::vector<float> whole = {0, 0, 4, 4}, most = {0, 0, 4, 3}, half = {0, 0, 4, 2};
  CHECK(kept<T>({most, whole}, {{0.5F}, {0.75F}}) == Found({{1, 0}}));
  CHECK(kept<T>({whole, half}, {{0.75F}, {0.5F}}) == Found({{0, 0}, {1, 0}}));  // 0.5 exactly.
  CHECK(kept<T>({whole, most}, {{0.75F, 0}, {0, 0.5F}}) == Found({{0, 0}, {1, 1}}));
  // What was dropped drops nothing.
  CHECK(kept<T>({whole, most, half}, {{1}, {0.75F}, {0.5F}}) == Found({{0, 0}, {2, 0}}));
  CHECK(kept<T>({whole, {4, 4, 8, 8}, {6, 6, 7, 7}}, {{0.5F}, {0.5F}, {0.5F}}) ==
        Found({{0, 0}, {1, 0}, {2, 0}}));
  CHECK(kept<T>({{9, 9, 10, 10}, whole}, {{0.75F}, {0.5F}}) == Found({{0, 0}, {1, 0}}));
  // The threshold of scores itself is not above it.
  CHECK(kept<T>({whole, half}, {{0.25F}, {0.375F}}) == Found({{1, 0}}));
}

void test_refusals_of_boxes() {
  const auto refused = [](Error error, const char* reason, void (*change)(NmsCall&)) {
    NmsCall call;
    change(call);
    call.fails(error, reason);
  };
  refused(Error::InvalidProgram, "arguments", [](NmsCall& c) { c.arguments = 8; });
  refused(Error::InvalidProgram, "arguments", [](NmsCall& c) { c.iou = EValue(int64_t{1}); });
  refused(Error::InvalidProgram, "arguments", [](NmsCall& c) { c.count.value = EValue(1.0); });
  refused(Error::InvalidArgument, "max_output is 0",
          [](NmsCall& c) { c.most = EValue(int64_t{0}); });
  refused(Error::InvalidArgument, "max_output is 2147483648",
          [](NmsCall& c) { c.most = EValue(int64_t{1} << 31); });
  refused(Error::InvalidArgument, "boxes [2, 3, 3] and scores [2, 3, 2]",
          [](NmsCall& c) { c.boxes = OwnedTensor({2, 3, 3}, c.box_data.data()); });
  refused(Error::InvalidArgument, "scores [2, 2, 2]",
          [](NmsCall& c) { c.scores = OwnedTensor({2, 2, 2}, c.score_data.data()); });
  refused(Error::InvalidArgument, "scores [2, 6]",
          [](NmsCall& c) { c.scores = OwnedTensor({2, 6}, c.score_data.data()); });
  refused(Error::InvalidArgument, "boxes of dtype",
          [](NmsCall& c) { c.boxes = OwnedTensor({2, 3, 4}, c.box_data.data(), ScalarType::Int); });
  refused(Error::InvalidArgument, "scores or outputs", [](NmsCall& c) {
    c.scores = OwnedTensor({2, 3, 2}, c.score_data.data(), ScalarType::Half);
  });
  refused(Error::InvalidArgument, "expected int64", [](NmsCall& c) {
    c.classes = OwnedTensor({2, 2}, c.class_data.data(), ScalarType::Int);
  });
  refused(Error::InvalidArgument, "contiguous",
          [](NmsCall& c) { std::swap(c.boxes.order[1], c.boxes.order[2]); });
  refused(Error::InvalidArgument, "outputs are not contiguous",
          [](NmsCall& c) { std::swap(c.out_boxes.order[0], c.out_boxes.order[1]); });
  refused(Error::InvalidArgument, "outputs are not contiguous",
          [](NmsCall& c) { std::swap(c.out_scores.order[0], c.out_scores.order[1]); });
  refused(Error::InvalidArgument, "outputs are not contiguous",
          [](NmsCall& c) { std::swap(c.classes.order[0], c.classes.order[1]); });
  // More results than the program's memory has room for.
  refused(Error::NotSupported, "[2, 3, 4]", [](NmsCall& c) { c.most = EValue(int64_t{3}); });
}

}  // namespace

void test_batched_nms() {
  test_answer();
  test_rule<float>();
  test_rule<executorch::runtime::etensor::Half>();
  test_rule<executorch::runtime::etensor::BFloat16>();
  test_refusals_of_boxes();
}
