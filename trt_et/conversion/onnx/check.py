"""Checks an ONNX model: its types, and the limits of TensorRT's ONNX parser.

The rules hold without TensorRT on the machine that exports;
``tests/conversion/onnx/test_parser.py`` asks a real parser.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trt_et.conversion.onnx.parser_operators import LIBRARY_TAKES, TAKES
from trt_et.errors import ConversionError

_LONGEST_REASON: Final = 300
_MOST_DIMENSIONS: Final = 8


def check_model(proto: Any, library: str | None = None) -> None:  # noqa: ANN401
    """Check an ``onnx.ModelProto`` for one engine library; None: for all of them.

    Raises:
        ConversionError: Its types contradict each other, or the parser does not take a node.
    """
    from onnx import shape_inference

    try:
        # Before opset 22 some operators took no bfloat16; the parser takes it.
        inferred = shape_inference.infer_shapes(
            proto, check_type=not _has_bfloat16(proto.graph), strict_mode=True
        )
    except Exception as error:  # onnx's class, or an error that it wraps.
        text = " ".join(str(error).split())[:_LONGEST_REASON]
        raise ConversionError(f"torch's ONNX exporter made a wrong model: {text}") from error
    types = _types(inferred.graph)
    takes = LIBRARY_TAKES.get(library or "", TAKES)
    functions = {function.name for function in proto.functions}
    for node in inferred.graph.node:
        if node.op_type in functions:  # Ours, whose operators every parser takes.
            continue
        if reason := _refusal(node, types, takes):
            raise ConversionError(reason, node.name.removeprefix("node_"))


def _has_bfloat16(graph: Any) -> bool:  # noqa: ANN401
    from onnx import TensorProto

    attributes = (attribute for node in graph.node for attribute in node.attribute)
    return TensorProto.BFLOAT16 in {
        *(info.type.tensor_type.elem_type for info in (*graph.input, *graph.output)),
        *(tensor.data_type for tensor in graph.initializer),
        *(attribute.i for attribute in attributes if attribute.name == "to"),
    }


def _types(graph: Any) -> dict[str, tuple[str, tuple[int, ...]]]:  # noqa: ANN401
    """Return the dtype and the sizes of each tensor, by name; 0 for a dynamic size."""
    from onnx import TensorProto

    name = TensorProto.DataType.Name
    known = {
        info.name: (
            name(info.type.tensor_type.elem_type),
            tuple(size.dim_value for size in info.type.tensor_type.shape.dim),
        )
        for info in (*graph.input, *graph.output, *graph.value_info)
    }
    constants = {
        tensor.name: (name(tensor.data_type), tuple(tensor.dims)) for tensor in graph.initializer
    }
    return known | constants


def _refusal(
    node: Any,  # noqa: ANN401
    types: dict[str, tuple[str, tuple[int, ...]]],
    takes: Mapping[str, frozenset[str]],
) -> str | None:
    taken = takes.get(node.op_type)
    if node.domain not in ("", "ai.onnx") or taken is None:
        return f"TensorRT's ONNX parser has no operator {node.op_type}"
    data = node.input[1 if node.op_type == "Where" else 0 : 2] or node.output[:1]
    dtype, sizes = types.get(data[0], ("", None))
    if dtype and dtype not in taken:
        return f"TensorRT's ONNX parser has no {node.op_type} of {dtype} tensors"
    for tensor in (*node.input, *node.output):
        if len(types.get(tensor, ("", ()))[1]) > _MOST_DIMENSIONS:
            number = len(types[tensor][1])
            return f"a tensor of it has {number} dimensions; TensorRT's have 8 at most"
    if node.op_type == "MaxPool" and any(node.output[1:]):
        return "TensorRT's ONNX parser has no MaxPool that returns indices"
    if sizes is not None:
        if node.op_type in ("ArgMax", "ArgMin") and len(sizes) < 2:
            return f"TensorRT's ONNX parser has no {node.op_type} of a line"
        if node.op_type in ("ScatterElements", "GatherElements") and not sizes:
            return f"TensorRT's ONNX parser has no {node.op_type} of a single number"
        if node.op_type == "GridSample" and len(sizes) != 4:
            return "TensorRT's ONNX parser samples images only, of 4 dimensions"
        indices = types.get(node.input[1], ("", ()))[1] if node.op_type == "ScatterElements" else ()
        if any(size and index > size for index, size in zip(indices, sizes, strict=False)):
            return "TensorRT's ONNX parser scatters at most as many numbers as there are"
    attributes = {one.name: one.s or one.i for one in node.attribute}
    if node.op_type == "Resize" and attributes.get("antialias"):
        return "TensorRT's ONNX parser has no Resize with antialiasing"
    if attributes.get("reduction", b"none") != b"none":
        return f"TensorRT's ONNX parser has no {node.op_type} with a reduction"
    return None
