"""Torch-TensorRT's converter tests and ExecuTorch's model suite, as programs for this backend."""
