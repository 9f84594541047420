"""Reads a ``.pte``: delegates, their engines, and the devices of its tensors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, Final

from trt_et.blob.codec import EngineBlob, decode_blob
from trt_et.blob.container import check_checksum
from trt_et.blob.model import BACKEND_ID
from trt_et.errors import BlobError
from trt_et.inspection.model import CopyInfo, DelegateInfo, DeviceUse, MethodInfo, ProgramInfo
from trt_et.inspection.pte import Delegate, Plan, read_pte

__all__ = ["inspect_file", "inspect_program", "read_program"]

_CHUNK: Final = 4 << 20
_COPIES: Final = {"et_copy::_h2d_copy": "h2d", "et_copy::_d2h_copy": "d2h"}


def inspect_program(pte: bytes | memoryview | mmap) -> tuple[MethodInfo, ...]:
    """Read a ``.pte``; the checksums of its engines are verified.

    Args:
        pte: The file's bytes. Of a mapped file or another view, engines are not copied.

    Raises:
        BlobError: It is no program, truncated or damaged. A damaged engine is reported in its
            :attr:`DelegateInfo.problem` instead.
    """
    return read_program(pte).methods


def inspect_file(path: str | os.PathLike[str], *, verify: bool = True) -> ProgramInfo:
    """Read a ``.pte`` file of any size, in little memory.

    Args:
        path: The file.
        verify: Check the engines' checksums. They are read for it, piece by piece.

    Raises:
        BlobError: It cannot be read, is no program, truncated or damaged.
    """
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = mmap(file.fileno(), 0, access=ACCESS_READ) if size else b""
            info = read_program(data, verify=False)
            return _verified(info, file) if verify else info
    except OSError as error:
        raise BlobError(f"{path} cannot be read: {error.strerror or error}") from error
    except BlobError as error:
        raise BlobError(f"{path} cannot be inspected: {error}") from error


def read_program(pte: bytes | memoryview | mmap, *, verify: bool = True) -> ProgramInfo:
    """Read a ``.pte``; like :func:`inspect_program`, with what is not of one method."""
    data = memoryview(pte).cast("B")
    program = read_pte(data)
    # A view of a file would keep it mapped; of bytes, the caller may want to keep the blob alone.
    copied = isinstance(pte, bytes)
    methods = []
    for plan in program.plans:
        delegates = tuple(
            _delegate(delegate, data, verify=verify, copied=copied) for delegate in plan.delegates
        )
        methods.append(_method(plan, delegates))
    return ProgramInfo(tuple(methods), len(data), program.constant_bytes, program.named_data)


def _delegate(delegate: Delegate, data: memoryview, *, verify: bool, copied: bool) -> DelegateInfo:
    where = delegate.data
    view = data[where.offset : where.offset + where.size]
    engine, size, problem = None, 0, ""
    operators: tuple[str, ...] = ()
    if delegate.backend_id == BACKEND_ID:
        try:
            decoded = decode_blob(view, verify=verify)
            engine, size = decoded.info, len(decoded.engine)
            operators = _operators(decoded)
        except BlobError as error:
            problem = str(error)
    return DelegateInfo(
        delegate.backend_id,
        delegate.compile_specs,
        where.size,
        engine,
        size,
        problem,
        bytes(view) if copied else view,
        operators,
        where.offset,
    )


def _operators(blob: EngineBlob) -> tuple[str, ...]:
    """A reference engine is a program itself; of other engines no file says what they compute."""
    if not blob.info.is_reference:
        return ()
    try:
        plans = read_pte(blob.engine).plans
    except BlobError as error:
        raise BlobError(f"the reference engine's own program is damaged: {error}") from error
    return tuple(
        plan.operators[call.index] for plan in plans for call in plan.calls if call.kind == "kernel"
    )


def _verified(info: ProgramInfo, file: BinaryIO) -> ProgramInfo:
    """The same with each engine's checksum verified."""
    methods = []
    for method in info.methods:
        delegates = tuple(
            replace(delegate, problem=_checksum_problem(delegate, file))
            if delegate.engine is not None
            else delegate
            for delegate in method.delegates
        )
        methods.append(replace(method, delegates=delegates))
    return replace(info, methods=tuple(methods))


def _checksum_problem(delegate: DelegateInfo, file: BinaryIO) -> str:
    try:
        check_checksum(_chunks(file, delegate.offset, delegate.size))
    except BlobError as error:
        return str(error)
    return ""


def _chunks(file: BinaryIO, offset: int, size: int) -> Iterator[memoryview]:
    """A part of a file in one buffer that is filled again and again."""
    buffer = memoryview(bytearray(min(size, _CHUNK)))
    file.seek(offset)
    while size:
        count = file.readinto(buffer[: min(size, len(buffer))])  # type: ignore[attr-defined]
        if not count:
            raise BlobError("the file became shorter while it was read")
        yield buffer[:count]
        size -= count


def _method(plan: Plan, delegates: tuple[DelegateInfo, ...]) -> MethodInfo:
    return MethodInfo(
        plan.name,
        delegates,
        plan.operators,
        _devices(plan),
        plan.inputs,
        plan.outputs,
        tuple(_copies(plan)),
        plan.calls,
        plan.values,
    )


def _copies(plan: Plan) -> Iterator[CopyInfo]:
    for call in plan.calls:
        if call.kind != "kernel":
            continue
        direction = _COPIES.get(plan.operators[call.index].partition(".")[0])
        tensors = [value for value in (plan.values[i] for i in call.args) if value is not None]
        if direction and tensors:
            on_gpu = tensors[-1] if direction == "h2d" else tensors[0]
            yield CopyInfo(direction, on_gpu.device, tensors[0].nbytes)


def _devices(plan: Plan) -> tuple[DeviceUse, ...]:
    tensors: dict[str, int] = {}
    for value in plan.values:
        if value is not None:
            tensors[value.device] = tensors.get(value.device, 0) + 1
    planned: dict[str, int] = {}
    for device, size in plan.planned_bytes:
        planned[device] = planned.get(device, 0) + size
    return tuple(
        DeviceUse(device, tensors.get(device, 0), planned.get(device, 0))
        for device in sorted({*tensors, *planned})
    )
