"""Finds and parses the texts of kernel programs in a TensorRT-RTX engine.

NVIDIA does not document this text. It was read off engines of versions 1.5, 1.6 and 1.7: each
program is framed by ``NLYM``, the library's number (u32) and the text's length (u64), and consists
of blocks. A value is a word, a text in quotes, or a block itself::

    header { version = 5 region = { name=devmem size=512 } }
    descriptors { tensor={ name="input0.1" dims={ 4 16 } type=float } }
    main { label bb1: function={ name=__myl_Add input_args={ "input0.1" } } }
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_START: Final = re.compile(rb"header \{\n")
_FRAME: Final = struct.Struct("<4sIQ")
_MAGIC: Final = b"NLYM"
# Quoted, a sign, or a word. A quote without its end is a sign that no statement allows.
_TOKEN: Final = re.compile(r'"([^"]*)"|([{}="])|([^\s{}="]+)')
_MOST_NESTED: Final = 8
_MOST_TEXT: Final = 64 << 20  # Bytes; a kernel takes 3 to 10 KB of text.


@dataclass
class Block:
    """The contents of a pair of braces: values without a name, and named ones, in order."""

    values: list[str] = field(default_factory=list)
    fields: list[tuple[str, str | Block]] = field(default_factory=list)

    def get(self, name: str) -> str | Block | None:
        """Return the first value of this name; None if there is none."""
        return next((value for key, value in self.fields if key == name), None)

    def text(self, name: str) -> str:
        """Return a word or a text; empty if there is none of this name."""
        value = self.get(name)
        return value if isinstance(value, str) else ""

    def list(self, name: str) -> list[str]:
        """Return the values of a block; empty if there is none of this name.

        Raises:
            ValueError: The block has named values.
        """
        value = self.get(name)
        if isinstance(value, Block) and value.fields:
            raise ValueError(f"{name} has named values")
        return value.values if isinstance(value, Block) else []

    def blocks(self, *names: str) -> Iterator[Block]:
        """Yield the blocks of these names."""
        for key, value in self.fields:
            if key in names and isinstance(value, Block):
                yield value


@dataclass
class Program:
    """A kernel program: its declarations, its tensors, and its statements."""

    header: Block
    descriptors: Block
    main: Block


def programs(engine: memoryview) -> Iterator[Program]:
    """Yield the programs of an engine, in order.

    For any bytes, it takes a time in proportion to the engine's size.

    Raises:
        ValueError: A program has no known frame, or another form, or the text is too long.
    """
    at, left = 0, _MOST_TEXT
    while found := _START.search(engine, at):
        start = found.start() - _FRAME.size
        if start < 0:
            raise ValueError("a text without a frame")
        magic, _, size = _FRAME.unpack_from(engine, start)
        at = found.start() + size
        if magic != _MAGIC or not len(found.group()) <= size <= len(engine) - found.start():
            raise ValueError("a text without a frame")
        left -= size
        if left < 0:
            raise ValueError("more text than an engine has")
        yield _parse(str(engine[found.start() : at], "utf-8", "replace"))


def _parse(text: str) -> Program:
    needed = text.partition("\nshape_main {")[0]  # The host's arithmetic of sizes comes last.
    tokens = (match.groups("") for match in _TOKEN.finditer(needed))
    sections = []
    for name in ("header", "descriptors", "main"):
        if next(tokens, None) != ("", "", name) or next(tokens, None) != ("", "{", ""):
            raise ValueError(f"expected {name}")
        sections.append(_block(tokens, _MOST_NESTED))
    return Program(*sections)


def _block(tokens: Iterator[tuple[str, ...]], depth: int) -> Block:
    """Read up to the brace that ends the block."""
    if not depth:
        raise ValueError("blocks are nested too deep")
    block = Block()
    for quoted, sign, word in tokens:
        if not sign:
            block.values.append(word or quoted)
        elif sign == "}":
            return block
        elif sign == "=":
            block.fields.append((_popped(block.values), _value(tokens, depth)))
        else:
            raise ValueError(f"{sign} is not expected")
    raise ValueError("a block has no end")


def _popped(values: list[str]) -> str:
    if not values:
        raise ValueError("a value has no name")
    return values.pop()


def _value(tokens: Iterator[tuple[str, ...]], depth: int) -> str | Block:
    quoted, sign, word = next(tokens, ("", "}", ""))
    if not sign:
        return word or quoted
    if sign != "{":
        raise ValueError(f"{sign} is no value")
    return _block(tokens, depth - 1)
