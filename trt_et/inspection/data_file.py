"""Reads a ``.ptd``: ExecuTorch's named data in a second file of a program."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from stat import S_ISREG
from typing import Final

from trt_et.blob.external import FILE_KEY, check_file_name
from trt_et.errors import BlobError, OptionError
from trt_et.inspection.flatbuffer import Budget, FileTable, damaged_tables

_HEADER: Final = struct.Struct("<4sIQQQQ")


def read_data_file(path: str | os.PathLike[str]) -> Mapping[str, memoryview]:
    """Return the data of a ``.ptd``, by name; nothing is copied.

    Raises:
        BlobError: It cannot be read, is no ``.ptd``, truncated or damaged.
    """
    try:
        with Path(path).open("rb") as file:
            if not S_ISREG(os.fstat(file.fileno()).st_mode):  # A pipe cannot be mapped.
                return _named_data(memoryview(file.read()))
            size = os.fstat(file.fileno()).st_size
            return _named_data(
                memoryview(mmap(file.fileno(), 0, access=ACCESS_READ) if size else b"")
            )
    except OSError as error:
        raise BlobError(f"{path} cannot be read: {error.strerror or error}") from error
    except BlobError as error:
        raise BlobError(f"{path} cannot be read: {error}") from error


def _named_data(data: memoryview) -> Mapping[str, memoryview]:
    # The header follows the offset of FlatBuffers' root and its identifier.
    if len(data) < 8 + _HEADER.size or bytes(data[4:12]) != b"FT01FH01":
        raise BlobError("it is no file of named data (.ptd)")
    _, _, start, size, base, length = _HEADER.unpack_from(data, 8)
    total = len(data)
    if start > total or size > total - start or base > total or length > total - base:
        raise BlobError(f"it is truncated: it has {total} bytes")
    with damaged_tables():
        # Offsets of tables count from the first byte of the file.
        root = FileTable(data[: start + size], struct.unpack_from("<I", data)[0], Budget(total))
        places = [(table.number(0, "Q"), table.number(1, "Q")) for table in root.tables(1)]
        named = [(table.text(0), table.number(1, "I")) for table in root.tables(2)]
    found = {}
    for key, index in named:
        if index >= len(places):
            raise BlobError(f"{key!r} refers to segment {index} of {len(places)}")
        at, size = places[index]
        if at > length or size > length - at:
            raise BlobError(f"{key!r} lies outside of its {total} bytes")
        found[key] = data[base + at : base + at + size]
    return found


def file_beside(program: str | os.PathLike[str], specs: Sequence[tuple[str, bytes]]) -> Path | None:
    """Return the file that a delegate's compile specs name, if it is in the program's folder."""
    file = expected_file(program, specs)
    return file if file is not None and file.is_file() else None


def expected_file(
    program: str | os.PathLike[str], specs: Sequence[tuple[str, bytes]]
) -> Path | None:
    """Return the file that a delegate's compile specs name, in the program's folder."""
    for key, value in specs:
        if key == FILE_KEY:
            try:
                name = check_file_name(value.decode("utf-8", "replace"))
            except OptionError:  # Another writer's, or an attack.
                return None
            return Path(program).with_name(f"{name}.ptd")
    return None
