"""Patches Torch-TensorRT, and torch around it, while it works; undoes every patch afterwards.

When it is imported, Torch-TensorRT queries the CUDA device and expects its C++ runtime. Filling a
TensorRT network needs neither, so ``without_gpu`` and ``without_runtime`` answer for them
on a machine without a GPU. Use the others within ``without_gpu``: one thread at a time. Seen with
Torch-TensorRT 2.13.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch.fx import GraphModule, Node

from trt_et.conversion.operators.grouped_weights import dequantize_groups
from trt_et.graph.arguments import named_arguments
from trt_et.graph.tracing import TRACING
from trt_et.ops.quantize import is_fake_quantize, is_quantize_layer


@contextlib.contextmanager
def without_gpu() -> Iterator[None]:
    """Answer Torch-TensorRT's queries of a GPU if there is none; one thread at a time."""
    with TRACING, contextlib.nullcontext() if torch.cuda.is_available() else _answers():
        yield


class _DeclaredDevice:
    """The GPU properties that Torch-TensorRT reads without a GPU; no engine depends on them."""

    name = "declared by trt-et"
    major, minor = 8, 9
    total_memory = 24 << 30
    multi_processor_count = 1


@contextlib.contextmanager
def _answers() -> Iterator[None]:
    device = _DeclaredDevice()
    answers = mock.patch.multiple(
        torch.cuda,
        get_device_capability=lambda *_: (device.major, device.minor),
        get_device_properties=lambda *_: device,
        current_device=lambda: 0,
    )
    properties = getattr(torch._C, "_CudaDeviceProperties", _DeclaredDevice)
    with answers, mock.patch.object(torch._C, "_CudaDeviceProperties", properties, create=True):
        yield


def without_runtime() -> AbstractContextManager[Any]:
    """Import Torch-TensorRT in its own "no C++ runtime" configuration.

    ``libtorchtrt.so`` links to libtorch's CUDA part, which a CPU build of torch does not have.
    Torch-TensorRT checks only that the file exists.
    """
    real = os.path.isfile

    def isfile(path: Any) -> bool:  # noqa: ANN401
        return "libtorchtrt" not in os.path.basename(str(path)) and real(path)  # noqa: PTH119

    return mock.patch.object(os.path, "isfile", isfile)


def constants_stay_small() -> AbstractContextManager[Any]:
    """Keep pointwise converters from repeating an operand.

    If the operands' ranks differ, and all sizes are static, Torch-TensorRT repeats the smaller one
    to the size of the larger one. TensorRT-RTX folds that: it stores the bias of a linear layer
    once for each token. TensorRT's layers need equal ranks only. Seen with 2.13.
    """
    from torch_tensorrt.dynamo.conversion.converter_utils import broadcast
    from torch_tensorrt.dynamo.conversion.impl.elementwise import base

    def with_equal_ranks(ctx: Any, _target: Any, _ir: Any, name: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        return broadcast(ctx, left, right, f"{name}_lhs", f"{name}_rhs")

    return mock.patch.object(base, "broadcast_to_same_shape", with_equal_ranks)


def without_registry_checks() -> AbstractContextManager[Any]:
    """Check Torch-TensorRT's registry of converters once.

    It looks at all of its entries whenever a converter is looked up, which takes a quarter of a
    conversion. Seen with 2.13.
    """
    from torch_tensorrt.dynamo.conversion import DYNAMO_CONVERTERS

    DYNAMO_CONVERTERS.validate_invariants()
    return mock.patch.object(type(DYNAMO_CONVERTERS), "validate_invariants", return_value=None)


def weights_stay_quantized() -> AbstractContextManager[Any]:
    """Keep Torch-TensorRT from folding quantized weights into float ones.

    Weights whose zero point is not 0 are folded: TensorRT has no layer for them. Seen with 2.13.
    """
    from torch_tensorrt.dynamo.lowering.passes import constant_folding

    folder = constant_folding._TorchTensorRTConstantFolder
    plain = folder.is_impure

    def is_impure(self: Any, node: Node) -> bool:  # noqa: ANN401
        return (
            bool(plain(self, node))
            or is_fake_quantize(node.target)
            or node.target is dequantize_groups
            or _is_symmetric_dequantize(self.module, node)
        )

    return mock.patch.object(folder, "is_impure", is_impure)


def _is_symmetric_dequantize(module: GraphModule, node: Node) -> bool:
    if not is_quantize_layer(node.target) or "dequantize" not in str(node.target):
        return False
    arguments = named_arguments(node)
    if "scale" in arguments:
        return bool(arguments["zero_point"] == 0)
    zero_points = arguments["zero_points"]
    if isinstance(zero_points, Node):
        zero_points = getattr(module, str(zero_points.target), None)
    return zero_points is None or not bool(zero_points.any())
