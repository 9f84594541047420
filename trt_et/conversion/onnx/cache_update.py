"""Updates of KV caches: a function of the model that newer parsers replace by a layer.

The function has the name of ONNX's ``TensorScatter`` and computes what ``write_rows`` does.
TensorRT ignores a node's domain and looks it up among its own operators first. So the parsers
of TensorRT 10.15 and TensorRT-RTX make an ``IKVCacheUpdateLayer``, which writes the rows in place.
Older ones, like any other reader of the model, take the function's body, which makes a new cache.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from trt_et.conversion.operators.caches import write_rows

_DOMAIN: Final = "trt_et"
_NAME: Final = "TensorScatter"
_OPSET: Final = 20
_FLOATS: Final = ["tensor(float)", "tensor(float16)", "tensor(bfloat16)"]
_POSITIONS: Final = 2  # The dimension that rows are written along: ONNX's default.


def register_cache_update(registry: Any) -> None:  # noqa: ANN401
    """Translate ``write_rows`` to a call of the function."""
    from onnx.defs import OpSchema
    from onnxscript.values import Op, Opset

    parameter = OpSchema.FormalParameter
    schema = OpSchema(
        _NAME,
        _DOMAIN,
        1,
        inputs=[parameter("cache", "T"), parameter("rows", "T"), parameter("starts", "I")],
        outputs=[parameter("result", "T")],
        type_constraints=[("T", _FLOATS, ""), ("I", ["tensor(int32)"], "")],
    )
    call = Op(Opset(_DOMAIN, 1), _NAME, schema)
    registry.register_op(write_rows, lambda cache, rows, starts: call(cache, rows, starts))


def add_cache_update_function(model: Any) -> None:  # noqa: ANN401
    """Define the function in an ``onnx_ir.Model`` that calls it."""
    if any(node.domain == _DOMAIN for node in model.graph):
        model.opset_imports[_DOMAIN] = 1
        function = _function()
        model.functions[function.identifier()] = function


def _function() -> Any:  # noqa: ANN401
    """Return the function of a cache, its new rows and the position of the first one.

    The starts of all batches are equal, as the conversion makes them.
    """
    import onnx_ir as ir

    nodes: list[Any] = []

    def add(operator: str, *inputs: Any, **attributes: Any) -> Any:  # noqa: ANN401
        node = ir.node(operator, inputs, attributes, name=f"{operator}_{len(nodes)}")
        nodes.append(node)
        return node.outputs[0]

    def number(value: int | list[int]) -> Any:  # noqa: ANN401
        return add("Constant", value=ir.tensor(torch.tensor(value).numpy()))

    def size(of: Any) -> Any:  # noqa: ANN401
        return add("Squeeze", add("Shape", of, start=_POSITIONS, end=_POSITIONS + 1))

    cache, rows, starts = inputs = [ir.Value(name=name) for name in ("cache", "rows", "starts")]
    zero = number(0)
    start = add("Cast", add("Gather", starts, zero), to=ir.DataType.INT64)
    offsets = add("Sub", add("Range", zero, size(cache), number(1)), start)
    is_new = add("And", add("GreaterOrEqual", offsets, zero), add("Less", offsets, size(rows)))
    picked = add("Gather", rows, add("Where", is_new, offsets, zero), axis=_POSITIONS)
    result = add("Where", add("Unsqueeze", is_new, number([1])), picked, cache)
    graph = ir.Graph(inputs, [result], nodes=nodes, opset_imports={"": _OPSET})
    return ir.Function(_DOMAIN, _NAME, graph=graph, attributes=[])
