"""Reports quantized products that an engine computes in float because of zero points."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from torch._ops import OpOverload
from torch.fx import Node

from trt_et.engine_program.edge_to_aten import aten_target, qualified_name
from trt_et.graph.operators import CONVOLUTION, MATRIX_PRODUCTS

_log = logging.getLogger(__name__)

_PRODUCTS: Final = MATRIX_PRODUCTS | {CONVOLUTION}
_DEQUANTIZE: Final = "quantized_decomposed::dequantize_per_tensor.default"
_ZERO_POINT: Final = 2  # Its position among the arguments.


def warn_float_products(nodes: Collection[Node], without_int8: Collection[OpOverload] = ()) -> None:
    """Log, in one line each, the number of quantized products that are computed in float.

    TensorRT's quantize layers have no zero points, and a library may have no int8 kernel for an
    operator. Such a product is right, but as slow as float. The nodes are in the Edge dialect, from
    all partitions.
    """
    shifted = [node for node in nodes if _is_shifted(node)]
    if shifted:
        _log.warning(
            "quantized products that are computed in float: %s. Their activations have zero points "
            "other than 0, which TensorRT's int8 layers do not have. For int8 products, quantize "
            "with trt_et.quantizer.TensorRTQuantizer",
            _counts(shifted),
        )
    lacking = [node for node in nodes if aten_target(node) in without_int8 and _is_quantized(node)]
    if lacking:
        _log.warning(
            "quantized products that are computed in float: %s. The builder's library has no int8 "
            "kernels for them, and such an engine moves more bytes than one in float16. For speed, "
            "leave them in float16 (set_op('aten.conv2d', None)); for a small file with exact "
            "activations, quantize them with int8_weight_only()",
            _counts(lacking),
        )


def _counts(nodes: Iterable[Node]) -> str:
    counts = Counter(qualified_name(node).rpartition(".")[0] for node in nodes)
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _is_shifted(node: Node) -> bool:
    return aten_target(node) in _PRODUCTS and any(map(_has_zero_point, node.all_input_nodes))


def _is_quantized(node: Node) -> bool:
    source = node.all_input_nodes[0]
    return _dequantizes(source) and source.args[0].op == "call_function"  # type: ignore[union-attr]


def _dequantizes(node: Node) -> bool:
    return node.op == "call_function" and qualified_name(node) == _DEQUANTIZE


def _has_zero_point(node: Node) -> bool:
    return (
        _dequantizes(node)
        and len(node.args) > _ZERO_POINT
        and node.args[_ZERO_POINT] not in (0, None)
    )
