// In place of TensorRT's header where only our own description of it is at hand.
#pragma once

#include <tensorrt/version.h>

namespace nvinfer1 = trt_et::nvinfer;
#define NV_TENSORRT_MAJOR TRT_ET_INTERFACE
