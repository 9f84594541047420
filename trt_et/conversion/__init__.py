"""Converts ATen programs to TensorRT networks; the only folder that imports torch_tensorrt."""
