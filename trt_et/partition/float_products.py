"""Reports quantized products that an engine computes in float because of zero points."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final

import torch
from torch.fx import Node

from trt_et.lowering.edge_to_aten import aten_target, qualified_name

__all__ = ["warn_float_products"]

_log = logging.getLogger(__name__)

aten = torch.ops.aten

_PRODUCTS: Final = frozenset(
    {
        aten.addmm.default,
        aten.bmm.default,
        aten.convolution.default,
        aten.linear.default,
        aten.matmul.default,
        aten.mm.default,
    }
)
_DEQUANTIZE: Final = "quantized_decomposed::dequantize_per_tensor.default"
_ZERO_POINT: Final = 2  # Its position among the arguments.


def warn_float_products(nodes: Iterable[Node]) -> None:
    """Log, in one line, the number of products whose inputs have a zero point.

    TensorRT's quantize layers have no zero points: such a product is right, but as slow as float.

    Args:
        nodes: The nodes of all partitions, in the Edge dialect.
    """
    found = Counter(qualified_name(node).rpartition(".")[0] for node in nodes if _is_shifted(node))
    if found:
        counts = ", ".join(f"{count} {name}" for name, count in found.items())
        _log.warning(
            "quantized products that are computed in float: %s. Their activations have zero points "
            "other than 0, which TensorRT's int8 layers do not have. For int8 products, quantize "
            "activations with qscheme=torch.per_tensor_symmetric",
            counts,
        )


def _is_shifted(node: Node) -> bool:
    return aten_target(node) in _PRODUCTS and any(map(_has_zero_point, node.all_input_nodes))


def _has_zero_point(node: Node) -> bool:
    if node.op != "call_function" or qualified_name(node) != _DEQUANTIZE:
        return False
    return len(node.args) > _ZERO_POINT and node.args[_ZERO_POINT] not in (0, None)
