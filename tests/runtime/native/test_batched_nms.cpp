// The kernel that programs find: a right answer, and calls that it must refuse.
#include <executorch/runtime/kernel/kernel_runtime_context.h>

#include <limits>
#include <string>
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
  // More results than the program's memory has room for.
  refused(Error::NotSupported, "[2, 3, 4]", [](NmsCall& c) { c.most = EValue(int64_t{3}); });
}

}  // namespace

void test_batched_nms() {
  test_answer();
  test_refusals_of_boxes();
}
