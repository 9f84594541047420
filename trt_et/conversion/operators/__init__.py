"""What trt-et does about operators that Torch-TensorRT converts wrongly: one file an operator."""
