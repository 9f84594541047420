"""Converts ATen programs to TensorRT networks, or to ONNX models; imports torch_tensorrt."""
