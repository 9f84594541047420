"""A program's facts as one JSON document, and how two of them differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from trt_et.inspection.model import DelegateInfo, MethodInfo, ProgramInfo
from trt_et.inspection.text import count_operators

__all__ = ["differences", "to_document"]


def to_document(program: ProgramInfo) -> dict[str, Any]:
    """All but the blobs' bytes, in types that JSON has."""
    return {
        "bytes": program.size,
        "constant_bytes": program.constant_bytes,
        "named_data": dict(program.named_data),
        "methods": {method.name: _method(method) for method in program.methods},
    }


def differences(first: Any, second: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401
    """What differs between two documents: one line per value, with its path."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in dict.fromkeys([*first, *second]):
            inner = f"{path}.{key}" if path else str(key)
            if key not in second:
                yield f"{inner}: only in the first"
            elif key not in first:
                yield f"{inner}: only in the second"
            else:
                yield from differences(first[key], second[key], inner)
    elif _are_lists_of_objects(first, second):
        if len(first) != len(second):
            yield f"{path}: {len(first)} entries -> {len(second)} entries"
        for index, (one, other) in enumerate(zip(first, second, strict=False)):
            yield from differences(one, other, f"{path}[{index}]")
    elif first != second:
        yield f"{path}: {first} -> {second}"


def _are_lists_of_objects(first: Any, second: Any) -> bool:  # noqa: ANN401
    both = [first, second]
    return all(isinstance(x, list) and all(isinstance(i, dict) for i in x) for x in both)


def _method(method: MethodInfo) -> dict[str, Any]:
    return {
        "inputs": [asdict(tensor) if tensor else {} for tensor in method.inputs],
        "outputs": [asdict(tensor) if tensor else {} for tensor in method.outputs],
        "delegates": [_delegate(delegate) for delegate in method.delegates],
        "cpu_operators": method.operator_calls,
        "devices": {use.device: asdict(use) for use in method.devices},
        "copies": [asdict(copy) for copy in method.copies],
    }


def _delegate(delegate: DelegateInfo) -> dict[str, Any]:
    return {
        "backend": delegate.backend_id,
        "bytes": delegate.size,
        "offset": delegate.offset,
        "compile_specs": {
            key: value.decode("utf-8", "backslashreplace") for key, value in delegate.compile_specs
        },
        "engine_bytes": delegate.engine_size,
        "engine": asdict(delegate.engine) if delegate.engine else None,
        "operators": count_operators(delegate.operators),
        "problem": delegate.problem,
    }
