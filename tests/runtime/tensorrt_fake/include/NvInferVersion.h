// The version that the fake TensorRT claims.
#pragma once

#define NV_TENSORRT_MAJOR 11
#define NV_TENSORRT_MINOR 7
#define NV_TENSORRT_PATCH 3
