"""Reads a ``.pte`` without torch."""

from __future__ import annotations

import math
import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, Final, TypeVar

from trt_et.blob.codec import EngineBlob, decode_blob
from trt_et.blob.container import check_checksum
from trt_et.blob.external import put_back
from trt_et.blob.model import BACKEND_ID
from trt_et.blob.partition_spec import PARTITION_KEY, PartitionNames, decode_names
from trt_et.errors import BlobError
from trt_et.inspection.data_file import file_beside, read_data_file
from trt_et.inspection.flatbuffer import Budget, FileTable, damaged_tables
from trt_et.inspection.model import (
    Call,
    DelegateInfo,
    DeviceUse,
    MethodInfo,
    ProgramInfo,
    TensorValue,
)
from trt_et.inspection.output_names import output_names

_T = TypeVar("_T")
_Places = dict[int, list[tuple[int, int]]]
_CHUNK: Final = 4 << 20
_TENSOR: Final = 5  # Position of Tensor in the union KernelTypes, from 1.
# After FlatBuffers' root and identifier: magic, length, the size of the program, and the place and
# size of the segments after it.
_HEADER: Final = struct.Struct("<4sIQQQ")
HEADER_SIZE: Final = 8 + _HEADER.size
# fmt: off
DTYPES: Final = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
    7: "float64", 8: "complex32", 9: "complex64", 10: "complex128", 11: "bool", 12: "qint8",
    13: "quint8", 14: "qint32", 15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn",
    27: "uint16", 28: "uint32", 29: "uint64",
}
# fmt: on
_ITEM_SIZES: Final = {
    name: int("".join(re.findall(r"^[a-z]+(\d+)", name)) or 8) // 8 for name in DTYPES.values()
}


def inspect_program(pte: bytes | memoryview | mmap) -> tuple[MethodInfo, ...]:
    """Read a ``.pte`` and verify the checksums of its engines.

    Args:
        pte: The file's bytes. Engines of a mapped file or another view are not copied.

    Raises:
        BlobError: It is no program, truncated or damaged. A damaged engine is reported in its
            ``DelegateInfo.problem`` instead.
    """
    return read_program(pte).methods


def inspect_file(
    path: str | os.PathLike[str],
    *,
    verify: bool = True,
    data: str | os.PathLike[str] | None = None,
) -> ProgramInfo:
    """Read a ``.pte`` file of any size, in little memory.

    Args:
        path: The file.
        verify: Check the engines' checksums, reading the engines piece by piece.
        data: The file with engines (``.ptd``). None: the one that the program names, if it is in
            the program's folder. Its engines are copied.

    Raises:
        BlobError: A file cannot be read, is no program or no ``.ptd``, truncated or damaged.
    """
    find_engines = _EngineFiles(path, data)
    try:
        with Path(path).open("rb") as file:
            status = os.fstat(file.fileno())
            if not S_ISREG(status.st_mode):  # A pipe cannot be mapped.
                whole = memoryview(file.read())
                return _Reader(whole, verify=verify, beside=find_engines).program()
            size = status.st_size
            mapped = mmap(file.fileno(), 0, access=ACCESS_READ) if size else b""

            def check(offset: int, size: int) -> None:
                check_checksum(_chunks(file, offset, size))

            checked = check if verify else None
            return _Reader(memoryview(mapped), check=checked, beside=find_engines).program()
    except OSError as error:
        raise BlobError(f"{path} cannot be read: {error.strerror or error}") from error
    except BlobError as error:
        raise BlobError(f"{path} cannot be inspected: {error}") from error


def read_program(pte: bytes | memoryview | mmap, *, verify: bool = True) -> ProgramInfo:
    """Read a ``.pte`` like ``inspect_program``, with the facts of the whole program."""
    data = memoryview(pte).cast("B")
    # A view of a file would keep it mapped; a view of bytes would keep the whole program.
    return _Reader(data, verify=verify, copied=isinstance(pte, bytes)).program()


def read_inputs(pte: bytes | mmap) -> dict[str, tuple[TensorValue | None, ...]]:
    """Read the inputs of each method, and nothing of its engines; None for one that is no tensor.

    Raises:
        BlobError: It is no program, truncated or damaged.
    """
    data = memoryview(pte)
    found: dict[str, tuple[TensorValue | None, ...]] = {}
    with damaged_tables():
        size, *_ = program_extents(data, len(data))
        root = FileTable(data[:size], struct.unpack_from("<I", data)[0], Budget(len(data)))
        for method in root.tables(1):
            values = method.tables(2)
            inputs = (_item(values, index, "an input") for index in method.numbers(3, "i"))
            found[method.text(0)] = tuple(map(_value, inputs))
    return found


def _chunks(file: BinaryIO, offset: int, size: int) -> Iterator[memoryview]:
    """Read a part of a file into one buffer, again and again."""
    buffer = memoryview(bytearray(min(size, _CHUNK)))
    file.seek(offset)
    while size:
        count = file.readinto(buffer[: min(size, len(buffer))])  # type: ignore[attr-defined]
        if not count:
            raise BlobError("the file became shorter while it was read")
        yield buffer[:count]
        size -= count


class _EngineFiles:
    """Finds the further files of a program."""

    def __init__(
        self, program: str | os.PathLike[str], data: str | os.PathLike[str] | None
    ) -> None:
        self._program = program
        self._named = None if data is None else read_data_file(data)
        self._read: dict[Path, Mapping[str, memoryview]] = {}

    def __call__(self, specs: Sequence[tuple[str, bytes]]) -> Mapping[str, memoryview]:
        """Return the data in the file of a delegate, by name; empty: there is no file."""
        if self._named is not None:
            return self._named
        file = file_beside(self._program, specs)
        if file is None:
            return {}
        if file not in self._read:
            self._read[file] = read_data_file(file)
        return self._read[file]


class _Reader:
    """Reads one program. Every offset, size and index in it may be wrong."""

    def __init__(
        self,
        data: memoryview,
        *,
        verify: bool = False,  # The engines' checksums, before all else.
        check: Callable[[int, int], None] | None = None,  # Of bytes, by their offset and size.
        copied: bool = False,  # The blobs.
        # Returns the data in the second file, from a delegate's compile specs.
        beside: Callable[[Sequence[tuple[str, bytes]]], Mapping[str, memoryview]] = lambda _: {},
    ) -> None:
        self._data, self._verify, self._check, self._copied = data, verify, check, copied
        self._beside = beside

    def program(self) -> ProgramInfo:
        with damaged_tables():
            return self._program()

    def _program(self) -> ProgramInfo:
        data = self._data
        size, base, end = program_extents(data, len(data))
        root = FileTable(data[:size], struct.unpack_from("<I", data)[0], Budget(len(data)))
        segments = []
        for index, table in enumerate(root.tables(4)):
            first, count = table.number(0, "Q"), table.number(1, "Q")
            if first > end - base or count > end - base - first:
                raise BlobError(
                    f"segment {index} ends at byte {base + first + count}, the file at {end}"
                )
            segments.append((base + first, count))
        places = {0: [table.span(0) for table in root.tables(3)], 1: segments}
        constants = root.table(5)
        constant_bytes = sum(table.span(0)[1] for table in root.tables(2))
        if constants is not None and constants.span(1, 8)[1]:
            constant_bytes += _item(segments, constants.number(0, "I"), "constant segment")[1]
        named_data = tuple(
            (table.text(0), _item(segments, table.number(1, "I"), "named data")[1])
            for table in root.tables(7)
        )
        methods = tuple(self._method(table, places) for table in root.tables(1))
        if not methods:
            raise BlobError("it has no method")
        return ProgramInfo(methods, len(data), constant_bytes, named_data)

    def _method(self, table: FileTable, places: _Places) -> MethodInfo:
        name = table.text(0)
        values = tuple(_value(entry) for entry in table.tables(2))
        inputs, outputs = table.numbers(3, "i"), table.numbers(4, "i")
        operators = tuple(
            ".".join(filter(None, (entry.text(0), entry.text(1)))) for entry in table.tables(6)
        )
        delegates = tuple(self._delegate(entry, places) for entry in table.tables(7))
        instructions = [_call(entry) for chain in table.tables(5) for entry in chain.tables(2)]
        calls = tuple(call for call in instructions if call is not None)
        targets = {"kernel": len(operators), "delegate": len(delegates)}
        for call in calls:
            _item(range(targets[call.kind]), call.index, f"a {call.kind} call")
            for index in call.args:
                _item(values, index, f"a {call.kind} call")
        for index in (*inputs, *outputs):
            _item(values, index, "an input or output")
        tensors = Counter(value.device for value in values if value is not None)
        buffers = {entry.number(0, "i"): _device(entry, 1) for entry in table.tables(9)}
        planned: Counter[str] = Counter()
        for index, size in enumerate(table.numbers(8, "q")):
            if size < 0:
                raise BlobError(f"method {name!r} plans a negative number of bytes")
            planned[buffers.get(index, "cpu")] += size
        devices = tuple(
            DeviceUse(device, tensors[device], planned[device])
            for device in sorted({*tensors, *planned})
        )
        result = table.table(1)
        names = output_names(result.text(1) if result is not None else "", len(outputs))
        return MethodInfo(
            *(name, delegates, operators, devices, inputs, outputs, calls, values, names)
        )

    def _delegate(self, table: FileTable, places: _Places) -> DelegateInfo:
        backend, reference = table.text(0), table.table(1)
        delegate = f"a delegate of {backend!r}"
        if reference is None:
            raise BlobError(f"{delegate} has no data")
        location = reference.number(0, "b")
        if location not in places:
            raise BlobError(f"the data of {delegate} have the unknown location {location}")
        offset, size = _item(places[location], reference.number(1, "I"), delegate)
        specs = tuple((spec.text(0), bytes(spec.numbers(1, "B"))) for spec in table.tables(2))
        names = next((decode_names(spec) for key, spec in specs if key == PARTITION_KEY), None)
        view = self._data[offset : offset + size]
        engine, engine_size, problem = None, 0, ""
        operators: tuple[str, ...] = ()
        if backend == BACKEND_ID:
            try:
                decoded = decode_blob(view, verify=self._verify)
                engine, engine_size = decoded.info, len(decoded.engine)
                if self._check:
                    self._check(offset, size)
                if engine.engine_key and not engine_size:
                    view = memoryview(put_back(decoded, self._beside(specs)) or view)
                    decoded = decode_blob(view, verify=False)
                    # The program plans memory for its own GPU.
                    device, key = engine.device_id, engine.engine_key
                    engine = replace(decoded.info, device_id=device, engine_key=key)
                    engine_size = len(decoded.engine)
                if engine_size or not engine.engine_key:
                    operators = _operators(decoded)
            except BlobError as error:
                problem = str(error)
        blob = bytes(view) if self._copied else view
        return DelegateInfo(
            *(backend, specs, size, engine, engine_size, problem, blob, operators, offset),
            names or PartitionNames(),
        )


def _value(entry: FileTable) -> TensorValue | None:
    table = entry.table(1)
    if entry.number(0, "B") != _TENSOR or table is None:
        return None
    dtype = DTYPES.get(table.number(0, "b"), f"type {table.number(0, 'b')}")
    sizes = table.numbers(2, "i")
    if any(size < 0 for size in sizes):
        raise BlobError(f"a tensor has the sizes {list(sizes)}")
    extra, dim_order = table.table(9), table.numbers(3, "B")
    if dim_order and sorted(dim_order) != list(range(len(sizes))):
        raise BlobError(f"a tensor has the dimension order {list(dim_order)}")
    return TensorValue(
        dtype,
        sizes,
        is_dynamic=table.number(8, "b") != 0,
        device=_device(extra, 3) if extra else "cpu",
        nbytes=math.prod(sizes) * _ITEM_SIZES.get(dtype, 0),
        is_constant=table.number(5, "I") != 0 and table.table(6) is None,
        dim_order=() if list(dim_order) == sorted(dim_order) else dim_order,
    )


def _call(entry: FileTable) -> Call | None:
    """Read an instruction; return None if it moves, jumps or frees."""
    kind, table = entry.number(0, "B"), entry.table(1)
    if not 1 <= kind <= 5 or table is None:
        raise BlobError(f"an instruction has the unknown kind {kind}")
    if kind > 2:
        return None
    return Call("kernel" if kind == 1 else "delegate", table.number(0, "i"), table.numbers(1, "i"))


def program_extents(start: bytes | memoryview, total: int) -> tuple[int, int, int]:
    """Return the size of a program's tables, and the first and last offset of its segments.

    Args:
        start: The first bytes of the program, ``HEADER_SIZE`` of them if it has as many.
        total: Bytes of the whole program.

    Raises:
        BlobError: It is no program, or truncated.
    """
    if bytes(start[4:6]) != b"ET":
        raise BlobError("it is no ExecuTorch program (.pte)")
    if total < HEADER_SIZE or bytes(start[8:12]) != b"eh00":
        return total, total, total
    _, length, size, base, segments = _HEADER.unpack_from(start, 8)
    end = max(size, base + (segments if length >= _HEADER.size else 0))
    if total < end:
        raise BlobError(f"it is truncated: it has {total} bytes; expected {end}")
    if size <= 8 or 0 < base < size:
        raise BlobError("it has a damaged header: its program ends within it, or in its segments")
    if not base:
        return size, total, total
    return size, base, end if length >= _HEADER.size else total


def _item(items: Sequence[_T], index: int, what: str) -> _T:
    if not 0 <= index < len(items):
        raise BlobError(f"{what} refers to entry {index} of {len(items)}")
    return items[index]


def _device(table: FileTable, field: int) -> str:
    """Name the device whose type is this field, and whose index is the next one."""
    kind, index = table.number(field, "b"), table.number(field + 1, "b")
    return "cpu" if kind == 0 else f"{'cuda' if kind == 1 else f'device type {kind}'}:{index}"


def _operators(blob: EngineBlob) -> tuple[str, ...]:
    """List the operators of a reference engine, which is a program itself."""
    if not blob.info.is_reference:
        return ()
    try:
        methods = _Reader(memoryview(blob.engine)).program().methods
    except BlobError as error:
        raise BlobError(f"the reference engine's own program is damaged: {error}") from error
    return tuple(
        method.cpu_operators[call.index]
        for method in methods
        for call in method.calls
        if call.kind == "kernel"
    )
