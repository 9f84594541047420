"""Engines that are no more than the text of a kernel program, in TensorRT-RTX's frame."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

HEADER = "version = 5\n  region = { name=devmem size=1024 place=accelerator }\n"
HEADER += "  region = { name=hmem size=64 place=host }\n"
HEADER += "  region = { name=consts size=64 place=accelerator constant=true }"
TENSORS = """tensor={ dims={ 4 16 } name="x.1" region="" strides={ 16 1 } type=float }
  tensor={ const_payload_size=64 dims={ 16 } name="weight" region=consts strides={ 1 } type=float }
  tensor={ dims={ 4 16 } name="y.1" region="devmem" strides={ 16 1 } type=half }
  tensor={ dims={ 1 } name="flag" region="hmem" strides={ 1 } type=bool }"""
ADD = 'function={ name=__myl_Add fqn=__myl_Add_0x1 input_args={ "x.1" "weight" } '
ADD += 'output_args={ "y.1" } binary = 0 }'


def text(main: str = ADD, tensors: str = TENSORS, header: str = HEADER) -> str:
    """Return the text of a program; ``main`` are its statements."""
    return (
        f"header {{\n  {header}\n}}\ndescriptors {{\n  {tensors}\n}}\n"
        f"main {{\n label bb1: \n  {main}\n}}\nshape_main {{\n}}\n"
    )


def frame(program: str, size: int | None = None, magic: bytes = b"NLYM") -> bytes:
    """Return a text in its frame, with some binary data behind it."""
    data = program.encode()
    length = len(data) if size is None else size
    return struct.pack("<4sIQ", magic, 2020048, length) + data + struct.pack("<2Q", 1, 1)


def engine(programs: Sequence[bytes] = (frame(text()),), magic: bytes = b"vtrt") -> bytes:
    """Return an engine with these framed programs."""
    data = bytes(40) + b"".join(programs)
    return struct.pack("<4s12xQ", magic, 24 + len(data)) + data


_FUSION = "version = 4\n  accelerators={*}"
_PRODUCT = 'fully_connected={ name="m" output={"y.1" } relu=true bias=true quantize=false }'


def _fusion(main: str, header: str = _FUSION, **frames: Any) -> bytes:
    return engine([frame(text()), frame(text(main, header=header), **frames)])


# Engines, and the results of their products that may lose a bias; None: that cannot be read.
LOST_BIASES: dict[str, tuple[bytes, tuple[str, ...] | None]] = {
    "in a fusion": (_fusion(_PRODUCT), ("y.1",)),
    "in the program": (engine([frame(text(_PRODUCT))]), ("y.1",)),
    "without an activation": (_fusion(_PRODUCT.replace("relu=true", "relu=false")), ("y.1",)),
    "behind another": (
        _fusion(_PRODUCT.replace("bias=true", "bias=false") + "\n" + _PRODUCT),
        ("y.1",),
    ),
    "two": (_fusion(_PRODUCT + "\n" + _PRODUCT.replace("y.1", "z.1")), ("y.1", "z.1")),
    "no bias": (_fusion(_PRODUCT.replace("bias=true", "bias=false")), ()),
    "a convolution": (_fusion(_PRODUCT.replace("fully_connected", "convolution")), ()),
    "no product": (engine(), ()),
    "another version": (engine([frame(text(_PRODUCT, header="version = 6"))]), None),
    "a fusion of another version": (_fusion(_PRODUCT, header="version = 5"), None),
    "no frame": (_fusion(_PRODUCT, magic=b"MYLN"), None),
    "too long a text": (_fusion(_PRODUCT, size=1 << 20), None),
    "too short a text": (_fusion(_PRODUCT, size=8), None),
    "no text": (engine([]), None),
    "cut": (_fusion(_PRODUCT)[:-1], None),
    "another library": (engine(magic=b"ftrt"), None),
    "nothing": (b"vtrt", None),
}
