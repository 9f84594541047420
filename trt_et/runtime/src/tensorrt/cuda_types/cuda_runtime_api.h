// All that TensorRT's headers need of CUDA's, for machines that have TensorRT's headers only. The
// provider calls no CUDA function.
#pragma once

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
