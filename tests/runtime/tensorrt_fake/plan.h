// The fake's engine format: lines of words.
//
//   fake                           the magic word; in an engine, the 32 bytes with which TensorRT's
//                                  engines begin may be in front of it, for the version
//   weights 1024                   bytes on the GPU for the engine
//   streamable 512                 bytes of weights that may stay on the host; none without it
//   scratch 256                    bytes on the GPU for each context
//   input x float32 -1,8           name, dtype, shape; "-" for none
//   output y float32 -1,8          of the shape of the first input where it is dynamic
//   alias y x                      y is written into the memory of x
//   plugin name                    the engine needs this plugin
//   host_code                      it holds code for the host
//   dla                            it was built for DLA
//   user_memory                    contexts need memory of the caller's, as TensorRT-RTX's with
//                                  REQUIRE_USER_ALLOCATION
//   no_context why                 contexts are refused, with this reason or without one
//   plain                          runs cannot be captured into a CUDA graph
//   late y                         the shape of y is known after the run
//   profile                        a new optimization profile; there is one without this line
//   range x 1,8 2,8 4,8            min, opt, max of an input in the last profile
//   scale y x 2.5                  y = 2.5 * x, elementwise, in this order
//   shift y x 1                    y = x + 1
//   sum y x z                      y = x + z
//   relu y x
//   linear y x 8 4 <numbers>       y = x W^T + b: sizes of x's and y's rows, W by rows, b; y may be
//   x write y x at                   rows x [b,h,n,w] into y [b,h,s,w], which has the memory of its
//                                  alias, from row at[0] (int64) on; none where they do not fit
#pragma once

#include <NvInferRuntime.h>

#include <map>
#include <string>
#include <vector>

namespace fake {

struct PlanTensor {
  std::string name;
  bool is_input = false;
  bool late = false;
  nvinfer1::DataType dtype = nvinfer1::DataType::kFLOAT;
  nvinfer1::Dims dims{};
  std::string alias;
};

struct Range {
  nvinfer1::Dims low, best, high;
};

struct PlanLayer {
  std::string kind;
  std::string name;  // As the profiler reports it: the fourth word, or the kind.
  size_t output = 0;
  size_t first = 0;
  size_t second = 0;
  float value = 0;
  size_t columns_in = 0, columns_out = 0;  // of linear
  std::vector<float> numbers;              // its weights, then its bias
};

struct Plan {
  int64_t weights = 1;
  int64_t streamable = 0;
  int64_t scratch = 1;
  bool plain = false;
  bool host_code = false;
  bool dla = false;
  bool user_memory = false;
  bool no_context = false;
  std::string why_no_context;
  std::vector<std::string> plugins;
  std::vector<PlanTensor> tensors;
  std::vector<std::map<std::string, Range>> profiles;
  std::vector<PlanLayer> layers;

  size_t find(const std::string& name) const;  // tensors.size() if there is none
};

// The reason why the text is no plan; empty when it is one.
std::string parse_plan(const std::string& text, Plan* plan);

}  // namespace fake
