"""Tables of a FlatBuffer, every offset and length checked.

The ``flatbuffers`` package trusts what it reads: a damaged file ends in ``struct.error``, in a
wrong value, or in a list of billions of elements. Here each of them is a
:class:`~trt_et.errors.BlobError`.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from trt_et.errors import BlobError

__all__ = ["FlatBuffer", "Table"]

_UINT16: Final = struct.Struct("<H")
_UINT32: Final = struct.Struct("<I")
_INT32: Final = struct.Struct("<i")
# What may be read in all, as a multiple of the buffer's size. Without sharing it is 1; tables that
# share others could ask for exponentially more.
_MAX_READ: Final = 8
_READ_AT_LEAST: Final = 1 << 16


class FlatBuffer:
    """Bytes that hold one root table.

    Args:
        data: The bytes; not copied.
    """

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self._left = _MAX_READ * len(data) + _READ_AT_LEAST
        self._vtables: dict[int, tuple[int, ...]] = {}

    def root(self) -> Table:
        """The root table."""
        return self.table_at(self.unpack(_UINT32, 0))

    def unpack(self, code: struct.Struct, at: int) -> Any:  # noqa: ANN401
        """One number."""
        self.check(at, code.size)
        return code.unpack_from(self.data, at)[0]

    def check(self, at: int, size: int) -> None:
        """Refuse a range that is not in the buffer."""
        if at < 0 or size > len(self.data) - at:
            raise BlobError(f"bytes {at} to {at + size} are outside of its {len(self.data)} bytes")

    def spend(self, size: int) -> None:
        """Count what is read, and refuse a file that has too much read from too few bytes."""
        self._left -= size
        if self._left < 0:
            raise BlobError("its tables refer to each other too often")

    def table_at(self, at: int) -> Table:
        """The table at an offset."""
        self.spend(4)
        vtable = at - self.unpack(_INT32, at)
        fields = self._vtables.get(vtable)
        if fields is None:
            fields = self._vtables[vtable] = self._read_vtable(vtable)
        self.check(at, fields[1])
        return Table(self, at, fields)

    def vector_at(self, at: int, item_size: int) -> tuple[int, int]:
        """Where a vector's items begin, and how many there are."""
        count = self.unpack(_UINT32, at)
        self.check(at + 4, count * item_size)
        return at + 4, count

    def _read_vtable(self, at: int) -> tuple[int, ...]:
        size = self.unpack(_UINT16, at)
        if size < 4 or size % 2:
            raise BlobError(f"the table description at byte {at} has the impossible size {size}")
        self.check(at, size)
        self.spend(size)
        return struct.unpack_from(f"<{size // 2}H", self.data, at)


class Table:
    """One table. A field is named by its slot: its position in the schema, from 0."""

    __slots__ = ("_at", "_buffer", "_vtable")

    def __init__(self, buffer: FlatBuffer, at: int, vtable: tuple[int, ...]) -> None:
        self._buffer = buffer
        self._at = at
        self._vtable = vtable

    def number(self, slot: int, code: str, default: int = 0) -> int:
        """A number; ``code`` is that of :mod:`struct`."""
        at = self._field(slot)
        return default if at is None else int(self._buffer.unpack(struct.Struct("<" + code), at))

    def table(self, slot: int) -> Table | None:
        """A table, or None where the field is absent."""
        at = self._target(slot)
        return None if at is None else self._buffer.table_at(at)

    def tables(self, slot: int) -> list[Table]:
        """A vector of tables."""
        buffer = self._buffer
        offsets = self.numbers(slot, "I")
        start = self._target(slot) or 0
        return [
            buffer.table_at(start + 4 + 4 * index + offset) for index, offset in enumerate(offsets)
        ]

    def numbers(self, slot: int, code: str) -> tuple[int, ...]:
        """A vector of numbers; ``code`` is that of :mod:`struct`."""
        at = self._target(slot)
        if at is None:
            return ()
        size = struct.calcsize("<" + code)
        start, count = self._buffer.vector_at(at, size)
        self._buffer.spend(count * size)
        return struct.unpack_from(f"<{count}{code}", self._buffer.data, start)

    def bytes(self, slot: int) -> memoryview:
        """A vector of bytes, not copied."""
        start, count = self.byte_range(slot)
        return self._buffer.data[start : start + count]

    def byte_range(self, slot: int) -> tuple[int, int]:
        """Where a vector of bytes begins in the buffer, and its length."""
        at = self._target(slot)
        return (0, 0) if at is None else self._buffer.vector_at(at, 1)

    def text(self, slot: int) -> str:
        """A string."""
        view = self.bytes(slot)
        self._buffer.spend(len(view))
        try:
            return str(view, "utf-8")
        except UnicodeDecodeError as error:
            raise BlobError(f"a name is not UTF-8: {bytes(view[:40])!r}") from error

    def _field(self, slot: int) -> int | None:
        offset = self._vtable[slot + 2] if slot + 2 < len(self._vtable) else 0
        return self._at + offset if offset else None

    def _target(self, slot: int) -> int | None:
        at = self._field(slot)
        return None if at is None else at + int(self._buffer.unpack(_UINT32, at))
