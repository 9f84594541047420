"""From an ATen program to a TensorRT network; the only folder that imports torch_tensorrt."""
