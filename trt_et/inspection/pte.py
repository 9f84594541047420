"""The parts of a ``.pte`` that inspection needs, read without torch and without its segments.

The slots are the positions of the fields in ExecuTorch's ``program.fbs``; the tests compare what is
read with ExecuTorch's own deserializer.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final

from trt_et.errors import BlobError
from trt_et.inspection.flatbuffer import FlatBuffer, Table

__all__ = ["Call", "Delegate", "Plan", "Pte", "Range", "TensorValue", "read_pte"]

_EXTENDED_HEADER: Final = struct.Struct("<4sIQQ")
_SEGMENT_DATA_SIZE: Final = struct.Struct("<Q")
_SCALAR_TYPES: Final = {
    0: ("uint8", 1),
    1: ("int8", 1),
    2: ("int16", 2),
    3: ("int32", 4),
    4: ("int64", 8),
    5: ("float16", 2),
    6: ("float32", 4),
    7: ("float64", 8),
    8: ("complex32", 4),
    9: ("complex64", 8),
    10: ("complex128", 16),
    11: ("bool", 1),
    12: ("qint8", 1),
    13: ("quint8", 1),
    14: ("qint32", 4),
    15: ("bfloat16", 2),
    23: ("float8_e5m2", 1),
    24: ("float8_e4m3fn", 1),
    27: ("uint16", 2),
    28: ("uint32", 4),
    29: ("uint64", 8),
}
_TENSOR: Final = 5  # Position of Tensor in the union KernelTypes, from 1.
_CALLS: Final = {1: "kernel", 2: "delegate", 3: "move", 4: "jump_false", 5: "free"}
_DEVICES: Final = {0: "cpu", 1: "cuda"}


@dataclass(frozen=True)
class Range:
    """Bytes of the file."""

    offset: int
    size: int


@dataclass(frozen=True)
class TensorValue:
    """A tensor of a method.

    Attributes:
        dtype: Such as ``float32``.
        sizes: Its sizes; the largest ones where they are dynamic.
        is_dynamic: Whether its sizes may be smaller.
        device: ``cpu`` or ``cuda:<index>``.
        nbytes: Bytes at these sizes.
        is_constant: Whether its data are in the file.
    """

    dtype: str
    sizes: tuple[int, ...]
    is_dynamic: bool
    device: str
    nbytes: int
    is_constant: bool


@dataclass(frozen=True)
class Call:
    """One instruction: its kind, the operator or delegate that it calls, and its values."""

    kind: str
    index: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class Delegate:
    """One delegate: the backend, its compile specs, and where its data are."""

    backend_id: str
    compile_specs: tuple[tuple[str, bytes], ...]
    data: Range


@dataclass(frozen=True)
class Plan:
    """One method."""

    name: str
    values: tuple[TensorValue | None, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    calls: tuple[Call, ...]
    operators: tuple[str, ...]
    delegates: tuple[Delegate, ...]
    planned_bytes: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Pte:
    """A program: its methods, its constants, and the named data of its backends."""

    plans: tuple[Plan, ...]
    constant_bytes: int
    named_data: tuple[tuple[str, int], ...]


def read_pte(data: memoryview) -> Pte:
    """Read a program; every offset in it is distrusted, and segments are not touched.

    Raises:
        BlobError: It is no ExecuTorch program, truncated or damaged.
    """
    if len(data) < 8 or bytes(data[4:6]) != b"ET":
        raise BlobError("it is no ExecuTorch program (.pte)")
    program_size, base, end = _extents(data)
    program = FlatBuffer(data[:program_size]).root()
    segments = tuple(
        _segment(index, table, base, end) for index, table in enumerate(program.tables(4))
    )
    inline = tuple(Range(*table.byte_range(0)) for table in program.tables(3))
    constants = program.table(5)
    constant_bytes = sum(table.byte_range(0)[1] for table in program.tables(2))
    if constants is not None and constants.numbers(1, "Q"):
        constant_bytes += _at(segments, constants.number(0, "I"), "constant segment").size
    named = tuple(
        (table.text(0), _at(segments, table.number(1, "I"), "named data").size)
        for table in program.tables(7)
    )
    plans = tuple(_plan(table, inline, segments) for table in program.tables(1))
    if not plans:
        raise BlobError("it has no method")
    return Pte(plans, constant_bytes, named)


def _extents(data: memoryview) -> tuple[int, int, int]:
    """Bytes of the FlatBuffer; where segments begin and end."""
    total = len(data)
    if total < 8 + _EXTENDED_HEADER.size or bytes(data[8:12]) != b"eh00":
        return total, total, total
    _, length, program_size, base = _EXTENDED_HEADER.unpack_from(data, 8)
    if not 8 < program_size <= total:
        raise BlobError(f"its header says {program_size} bytes of program; the file has {total}")
    if not base:
        return program_size, total, total
    if base < program_size:
        raise BlobError(f"its segments begin at byte {base}, within its program")
    end = total
    size_at = 8 + _EXTENDED_HEADER.size
    if length >= _EXTENDED_HEADER.size + 8 and total >= size_at + 8:
        end = base + int(_SEGMENT_DATA_SIZE.unpack_from(data, size_at)[0])
    if end > total:
        raise BlobError(f"it is truncated: its segments end at byte {end}, the file at {total}")
    return program_size, base, end


def _segment(index: int, table: Table, base: int, end: int) -> Range:
    offset, size = table.number(0, "Q"), table.number(1, "Q")
    if offset > end - base or size > end - base - offset:
        raise BlobError(f"segment {index} ends at byte {base + offset + size}, the file at {end}")
    return Range(base + offset, size)


def _at(items: tuple[Range, ...], index: int, what: str) -> Range:
    if not 0 <= index < len(items):
        raise BlobError(f"{what} refers to entry {index} of {len(items)}")
    return items[index]


def _plan(table: Table, inline: tuple[Range, ...], segments: tuple[Range, ...]) -> Plan:
    values = tuple(_value(entry) for entry in table.tables(2))
    operators = tuple(
        ".".join(filter(None, (entry.text(0), entry.text(1)))) for entry in table.tables(6)
    )
    delegates = tuple(_delegate(entry, inline, segments) for entry in table.tables(7))
    calls = tuple(
        _call(entry, len(values), len(operators), len(delegates))
        for chain in table.tables(5)
        for entry in chain.tables(2)
    )
    inputs, outputs = table.numbers(3, "i"), table.numbers(4, "i")
    for index in (*inputs, *outputs):
        _check_index(index, len(values), "an input or output")
    devices = {
        entry.number(0, "i"): _device(entry.number(1, "b"), entry.number(2, "b"))
        for entry in table.tables(9)
    }
    planned = tuple(
        (devices.get(index, "cpu"), size) for index, size in enumerate(table.numbers(8, "q"))
    )
    if any(size < 0 for _, size in planned):
        raise BlobError(f"method {table.text(0)!r} plans a negative number of bytes")
    return Plan(table.text(0), values, inputs, outputs, calls, operators, delegates, planned)


def _value(entry: Table) -> TensorValue | None:
    table = entry.table(1)
    if entry.number(0, "B") != _TENSOR or table is None:
        return None
    code = table.number(0, "b")
    dtype, item_size = _SCALAR_TYPES.get(code, (f"type {code}", 0))
    sizes = table.numbers(2, "i")
    if any(size < 0 for size in sizes):
        raise BlobError(f"a tensor has the sizes {list(sizes)}")
    extra = table.table(9)
    device = _device(extra.number(3, "b"), extra.number(4, "b")) if extra else "cpu"
    return TensorValue(
        dtype,
        sizes,
        is_dynamic=table.number(8, "b") != 0,
        device=device,
        nbytes=math.prod(sizes) * item_size,
        is_constant=table.number(5, "I") != 0 and table.table(6) is None,
    )


def _device(kind: int, index: int) -> str:
    name = _DEVICES.get(kind, f"device type {kind}")
    return name if name == "cpu" else f"{name}:{index}"


def _delegate(table: Table, inline: tuple[Range, ...], segments: tuple[Range, ...]) -> Delegate:
    backend = table.text(0)
    processed = table.table(1)
    if processed is None:
        raise BlobError(f"a delegate of {backend!r} has no data")
    location, index = processed.number(0, "b"), processed.number(1, "I")
    if location not in (0, 1):
        raise BlobError(
            f"the data of a delegate of {backend!r} have the unknown location {location}"
        )
    data = _at(segments if location else inline, index, f"a delegate of {backend!r}")
    specs = tuple((spec.text(0), bytes(spec.bytes(1))) for spec in table.tables(2))
    return Delegate(backend, specs, data)


def _call(entry: Table, values: int, operators: int, delegates: int) -> Call:
    table = entry.table(1)
    kind = _CALLS.get(entry.number(0, "B"))
    if kind is None or table is None:
        raise BlobError(f"an instruction has the unknown kind {entry.number(0, 'B')}")
    first = table.number(0, "i")
    if kind in ("kernel", "delegate"):
        args = table.numbers(1, "i")
        _check_index(first, operators if kind == "kernel" else delegates, f"a {kind} call")
    else:
        args = (first, table.number(1, "i")) if kind == "move" else (first,)
        first = table.number(1, "i") if kind == "jump_false" else 0
    for index in args:
        _check_index(index, values, f"a {kind} call")
    return Call(kind, first, args)


def _check_index(index: int, count: int, what: str) -> None:
    if not 0 <= index < count:
        raise BlobError(f"{what} refers to entry {index} of {count}")
