"""Parse JSON as strictly as C++ does (``runtime/src/blob/strict_json.cpp``)."""

from __future__ import annotations

import json
from typing import Any, Final

from trt_et.errors import BlobError

_MAX_DEPTH: Final = 16


def load_json(data: bytes) -> dict[str, Any]:
    """Parse one JSON object.

    Args:
        data: UTF-8; no duplicate keys, no NaN or infinity, nesting at most 16 deep.

    Raises:
        BlobError: The data violate one of these rules.
    """
    try:
        document = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_finite_integer,
        )
        # A lone surrogate is valid to Python's parser and to no other.
        json.dumps(document, ensure_ascii=False).encode("utf-8")
        depth = _depth(document)
    except (ValueError, RecursionError) as error:
        raise BlobError(f"engine metadata is not strict JSON: {error}") from error
    if not isinstance(document, dict):
        raise BlobError("engine metadata is not a JSON object")
    if depth > _MAX_DEPTH:
        raise BlobError(f"engine metadata is nested deeper than {_MAX_DEPTH}")
    return document


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("an object has the same key twice")
    return document


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is out of range")
    return value


def _finite_integer(text: str) -> int:
    # C++ reads an integer beyond 64 bits as a floating-point number.
    value = int(text)
    if not -(2**63) <= value < 2**64:
        _finite(text)
    return value


def _depth(value: object) -> int:
    if not isinstance(value, dict | list):
        return 0
    items = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, items), default=0)
