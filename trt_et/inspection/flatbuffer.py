"""Reads the tables of ExecuTorch's files without torch. Any offset and size may be wrong."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from flatbuffers.table import Table

from trt_et.errors import BlobError


class Budget:
    """Counts the bytes that are read of a file.

    Tables may share others, and a small file could take forever.
    """

    def __init__(self, size: int) -> None:
        self._left = 8 * size + (1 << 16)

    def spend(self, size: int) -> None:
        """Count bytes.

        Raises:
            BlobError: They are too many.
        """
        self._left -= size
        if self._left < 0:
            raise BlobError("its tables refer to each other too often")


@contextmanager
def damaged_tables() -> Iterator[None]:
    """Raise ``BlobError`` for what ``struct`` and flatbuffers raise."""
    try:
        yield
    except (struct.error, TypeError, UnicodeDecodeError) as error:
        raise BlobError(f"its tables are damaged: {error}") from error


class FileTable(Table):
    """A table of a FlatBuffer. Its fields have the numbers of ExecuTorch's schemas.

    The readers that ExecuTorch generates from them cannot be imported without torch, which takes
    seconds.

    Args:
        data: All tables.
        at: The offset of this one.
        budget: Of the file.
    """

    def __init__(self, data: memoryview, at: int, budget: Budget) -> None:
        super().__init__(data, at)
        self._budget = budget

    def number(self, field: int, code: str) -> int:
        """Read a number; ``code`` is its format in ``struct``."""
        at = self.Offset(4 + 2 * field)
        return int(struct.unpack_from(f"<{code}", self.Bytes, self.Pos + at)[0]) if at else 0

    def table(self, field: int) -> FileTable | None:
        """Return a table; None if there is none."""
        at = self.Offset(4 + 2 * field)
        return FileTable(self.Bytes, self.Indirect(self.Pos + at), self._budget) if at else None

    def tables(self, field: int) -> list[FileTable]:
        """Return the tables of a list."""
        start, count = self.span(field, 4)
        self._budget.spend(4 * count)
        return [
            FileTable(self.Bytes, self.Indirect(start + 4 * index), self._budget)
            for index in range(count)
        ]

    def numbers(self, field: int, code: str) -> tuple[int, ...]:
        """Read a list of numbers."""
        size = struct.calcsize(f"<{code}")
        start, count = self.span(field, size)
        self._budget.spend(count * size)
        return struct.unpack_from(f"<{count}{code}", self.Bytes, start)

    def text(self, field: int) -> str:
        """Read a text."""
        return str(bytes(self.numbers(field, "B")), "utf-8")

    def span(self, field: int, item_size: int = 1) -> tuple[int, int]:
        """Return the offset of a list and the number of its items."""
        at = self.Offset(4 + 2 * field)
        if not at:
            return 0, 0
        start, count = self.Vector(at), self.VectorLen(at)
        if count * item_size > len(self.Bytes) - start:
            raise BlobError(f"a list of {count} items ends outside of its {len(self.Bytes)} bytes")
        return start, count
