"""Brings a graph of plain ATen into the form that torch's ONNX exporter translates correctly.

The rewrites are those for TensorRT's networks, which the parser makes of the model: they compute
the same in plain ATen. What only a layer of TensorRT can hold is not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from torch.fx import GraphModule

from trt_et.conversion.decompose import inline_decompositions
from trt_et.conversion.onnx.quantize import ONNX_FP8, ONNX_QUANTIZE
from trt_et.conversion.onnx.rewrites import REWRITES
from trt_et.conversion.onnx.translate import torch_decompositions
from trt_et.conversion.operator import Operator, Step
from trt_et.conversion.operators.kv_cache import update_in_place
from trt_et.conversion.prepare import rewrite
from trt_et.conversion.registry import OPERATORS, decompositions
from trt_et.engine_program.in_place_buffers import InPlaceBuffer

_ENTRIES: Final = (
    *(entry for entry in OPERATORS if getattr(entry, "library", None) is None),
    *REWRITES,
    ONNX_FP8,
    ONNX_QUANTIZE,
)


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    return torch_decompositions() | decompositions(_ENTRIES)


def prepare_module(module: GraphModule, aliased_outputs: Sequence[InPlaceBuffer] = ()) -> None:
    """Apply all decompositions and rewrites to a module; see ``model.convert_module``."""
    for entry in _ENTRIES:
        if isinstance(entry, Operator):
            rewrite(module, entry)
        elif entry is Step.UPDATE_IN_PLACE:
            update_in_place(module, aliased_outputs)
        else:
            inline_decompositions(module, _decompositions())
    for node in reversed(list(module.graph.nodes)):
        # Also detach_, which changes nothing that anybody reads.
        if node.op == "call_function" and not node.users:
            module.graph.erase_node(node)
