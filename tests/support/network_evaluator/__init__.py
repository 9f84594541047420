"""Evaluates a filled TensorRT network on the CPU, layer by layer, with torch.

What a layer computes is taken from TensorRT's documentation (``NvInfer.h``), not from what its
converter meant. It is no engine and says nothing of TensorRT's kernels: it says whether the network
that a builder hands to TensorRT stands for what the program computes.
"""

from tests.support.network_evaluator.evaluator import evaluate
from tests.support.network_evaluator.registry import BadNetwork, NotEvaluated, Undefined

__all__ = ["BadNetwork", "NotEvaluated", "Undefined", "evaluate"]
