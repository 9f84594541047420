"""Brings a graph of plain ATen into the form that torch's ONNX exporter translates correctly."""

from __future__ import annotations

from typing import Final

from torch.fx import GraphModule

from trt_et.conversion.decompose import inline_decompositions
from trt_et.conversion.operator import Operator
from trt_et.conversion.operators import type_promotion
from trt_et.conversion.prepare import rewrite
from trt_et.onnx.translate import torch_decompositions

__all__ = ["prepare_module"]

_REWRITES: Final[tuple[Operator, ...]] = (type_promotion.TYPE_PROMOTION,)


def prepare_module(module: GraphModule) -> None:
    """Apply all decompositions and rewrites to a module.

    Args:
        module: Plain ATen, constants as attributes; changed.
    """
    inline_decompositions(module, torch_decompositions())
    for entry in _REWRITES:
        rewrite(module, entry)
