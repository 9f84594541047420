"""Lists the operators of an ONNX model without the package ``onnx``; devices need not have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trt_et.errors import BlobError

_GRAPH: Final = 7  # Fields of onnx.proto.
_NODE: Final = 1
_OPERATOR: Final = 4
_BYTES: Final = 2  # Wire types of protobuf.
_SIZES: Final = {1: 8, 5: 4}


def network_operators(model: memoryview) -> tuple[str, ...]:
    """Return the operators of a serialized ``ModelProto``, in order.

    Raises:
        BlobError: It is damaged.
    """
    try:
        return tuple(
            str(bytes(name), "utf-8")
            for graph in _fields(model, _GRAPH)
            for node in _fields(graph, _NODE)
            for name in _fields(node, _OPERATOR)
        )
    except (IndexError, UnicodeDecodeError) as error:
        raise BlobError(f"the network is damaged: {error}") from error


def _fields(message: memoryview, wanted: int) -> Iterator[memoryview]:
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        kind = tag & 7
        if kind == _BYTES:
            size, at = _number(message, at)
            if size > len(message) - at:
                raise BlobError("the network is damaged: a field ends outside of it")
            if tag >> 3 == wanted:
                yield message[at : at + size]
            at += size
        elif kind == 0:
            _, at = _number(message, at)
        elif kind in _SIZES:
            at += _SIZES[kind]
        else:
            raise BlobError(f"the network is damaged: it has the wire type {kind}")


def _number(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise BlobError("the network is damaged: a number has too many bytes")
