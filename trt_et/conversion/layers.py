"""Adds TensorRT's layers for one call; import it without TensorRT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node


class Layers:
    """The network of one call, with Torch-TensorRT's helpers.

    Layers are named after the node, so that two exports build the same engine.

    Attributes:
        ctx: Torch-TensorRT's ``ConversionContext``.
        net: ``trt.INetworkDefinition``.
        node: The call.
        trt: TensorRT's bindings.
        convert: Takes ``(args, kwargs)``, and adds the layers of Torch-TensorRT's converter.
    """

    def __init__(self, ctx: Any, node: Node, convert: Callable[..., Any]) -> None:  # noqa: ANN401
        import tensorrt  # Torch-TensorRT's alias of the library that it uses.

        self.ctx = ctx
        self.net = ctx.net
        self.node = node
        self.trt = tensorrt
        self.convert = convert

    def tensor(self, value: Any, name: str, dtype: Any = None, min_rank: int = 1) -> Any:  # noqa: ANN401
        """Return TensorRT's tensor of an argument, which may be a constant."""
        from torch_tensorrt.dynamo.conversion.converter_utils import get_trt_tensor

        return get_trt_tensor(self.ctx, value, f"{self.node.name}_{name}", dtype, min_rank)

    def cast(self, tensor: Any, dtype: torch.dtype, name: str) -> Any:  # noqa: ANN401
        """Cast TensorRT's tensor, unless it has the dtype."""
        from torch_tensorrt.dynamo.conversion.converter_utils import cast_trt_tensor

        return cast_trt_tensor(self.ctx, tensor, dtype, f"{self.node.name}_{name}")

    def result(self, layer: Any, name: str, output: int = 0) -> Any:  # noqa: ANN401
        """Name a layer, and return its output."""
        layer.name = f"{self.node.name}_{name}"
        return layer.get_output(output)
