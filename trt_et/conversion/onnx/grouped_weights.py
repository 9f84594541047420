"""Weights of 4 bits with scales of groups: ONNX's int4 and its DequantizeLinear of blocks.

Both are of opset 21. TensorRT 10.0's parser documents up to 20, but it reads this opset and takes
these two; so models with such weights are of opset 21, and no others.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from trt_et.conversion.operators.grouped_weights import dequantize_groups, pack_int4

_OPSET: Final = 21
_BLOCKS: Final = "block_size"


def register_dequantize_groups(registry: Any) -> None:  # noqa: ANN401
    """Translate ``dequantize_groups`` to a DequantizeLinear of int8 numbers."""
    from onnxscript import opset21 as op

    def dequantize(weight: Any, scale: Any) -> Any:  # noqa: ANN401
        group = weight.shape[1] // scale.shape[1]
        return op.DequantizeLinear(weight, scale, axis=1, block_size=group)

    registry.register_op(dequantize_groups, dequantize)


def pack_grouped_weights(model: Any) -> None:  # noqa: ANN401
    """Store the weights that an ``onnx_ir.Model`` dequantizes in blocks as int4."""
    import onnx_ir as ir

    graph = model.graph
    packed: dict[Any, Any] = {}
    for node in graph:
        if node.op_type != "DequantizeLinear" or _BLOCKS not in node.attributes:
            continue
        weight = node.inputs[0]
        if weight not in packed:
            name = f"{weight.name}_int4"
            value = ir.Value(name=name, const_value=_packed(weight.const_value, name))
            graph.register_initializer(value)
            packed[weight] = value
        node.replace_input_with(0, packed[weight])
    for weight in packed:
        if not weight.uses():
            del graph.initializers[weight.name]
    if packed:
        graph.opset_imports[""] = _OPSET


def _packed(held: Any, name: str) -> Any:  # noqa: ANN401
    import onnx_ir as ir

    numbers: torch.Tensor = held.raw
    return ir.PackedTensor(pack_int4(numbers), ir.DataType.INT4, shape=held.shape, name=name)
