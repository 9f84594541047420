"""Reads the kernels of a TensorRT-RTX engine, without a GPU or the library.

A TensorRT-RTX engine holds its kernel program as text (``kernel_text``). NVIDIA does not
document this text: a fact that is not known exactly is None here, never a guess.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from trt_et.inspection.kernel_text import Block, Program, programs
from trt_et.inspection.tables import Shown, Table, size_text

_START: Final = struct.Struct("<4s12xQ")  # Of a TensorRT-RTX engine: its mark and its size.
_MAGIC: Final = b"vtrt"
_VERSION, _FUSION_VERSION = "5", "4"  # Of the texts of TensorRT-RTX 1.5 to 1.7.
# fmt: off
_BITS: Final = {
    "float": 32, "half": 16, "bf16": 16, "fp8_e4m3": 8, "fp8_e8m0": 8, "fp4_e2m1": 4,
    "int64": 64, "int32": 32, "int8": 8, "uint8": 8, "int4": 4, "bool": 8,
}
_PLACES: Final = frozenset(["accelerator", "host"])  # Of regions of memory.
# Statements that write to no tensor.
_CONTROL: Final = frozenset(["assert", "cjmp", "jmp", "shape_call", "signal", "wait"])
# The argument with the number of a fusion, in the statements that launch it.
_FUSION_INDEX: Final = {"runtime_fusion": "binary", "runtime_function": "runtime_binary"}
# Operators by their short names in a kernel's name, if these are no words.
_OPERATORS: Final = {
    "conc": "concat", "corr": "convolution", "corrltn": "convolution", "cums": "cumsum",
    "deco": "deconvolution", "eql": "equal", "etc": "...", "fc": "matmul", "floo": "floor",
    "fully_connected": "matmul", "gath": "gather", "gnor": "group_norm", "gnorm": "group_norm",
    "gtr": "greater", "inor": "instance_norm", "inorm": "instance_norm", "lt": "less",
    "maxr": "max_reduce", "repl": "replicate", "resh": "reshape", "resi": "resize",
    "scat": "scatter", "sele": "select", "sigm": "sigmoid", "slic": "slice", "tran": "transpose",
}
# fmt: on
#: What ``Kernel.bytes_read``, ``bytes_written`` and ``constant_bytes`` are called in tables.
KERNEL_BYTES: Final = ("read", "written", "constants")
_FUSED: Final = re.compile(r"__myl_((?:[A-Z][a-z0-9]*)+)")
# A layer is named after a node of the partition, "linear_0" or, by an ONNX parser, "node_linear_0";
# "linear_0_add_bias" is a part of it.
_NODE: Final = r"(?:node_)?((?!__)[A-Za-z_]\w*?_\d+)(?![0-9A-Za-z])"
_LAYER: Final = re.compile(rf"\[\w+\]-\[[^\]]*\]-\[{_NODE}")
_LAYER_START: Final = re.compile(_NODE)
_VALUE: Final = re.compile(r"\.\d+$")  # Else a tensor is a copy of a value, in another layout.


@dataclass(frozen=True)
class Kernel:
    """A kernel, copy or fill that a call launches.

    Bytes count each tensor that it names once, at its whole size. They are None if a tensor's sizes
    are dynamic.

    Attributes:
        kind: The engine's word for it: ``function`` (compiled from CUDA source),
            ``runtime_fusion`` (a matrix product or convolution with what follows it),
            ``fully_connected``, ``memset``, ...
        name: Its name in the engine.
        operators: The operators that it computes, in order; ``...`` if its name leaves some out.
        nodes: The partition's nodes that the engine names with it; often not all that it computes.
        bytes_read: Bytes of activations that it reads.
        bytes_written: Bytes that it writes.
        constant_bytes: Bytes of constants that it reads.
        source: The name of the CUDA source that it is compiled from; empty without one.
    """

    kind: str
    name: str
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    bytes_read: int | None
    bytes_written: int | None
    constant_bytes: int | None
    source: str = ""

    @property
    def bytes_moved(self) -> int | None:
        """Return the bytes that it reads and writes, constants included."""
        return _sum((self.bytes_read, self.bytes_written, self.constant_bytes))

    def __str__(self) -> str:
        nodes = f" ({', '.join(self.nodes)})" if self.nodes else ""
        counts = zip(
            (self.bytes_read, self.bytes_written, self.constant_bytes), KERNEL_BYTES, strict=True
        )
        moved = ", ".join(f"{text} {what}" for count, what in counts if (text := _cell(count)))
        return f"{self.kind} {', '.join(self.operators)}{nodes}: {moved}"


@dataclass(frozen=True)
class EngineKernels(Shown):
    """The kernels, copies and fills that a call of an engine launches.

    A loop's body counts once, and so does each branch of a condition. ``print`` shows the totals,
    a notebook a table of the kernels.

    Attributes:
        kernels: In the order of the engine's program.
        activation_memory: Bytes of GPU memory for activations and scratch space; with dynamic
            sizes for the largest ones.
        sources: The number of kernels that are compiled from CUDA source.
        distinct_sources: The number of different sources among them.
    """

    kernels: tuple[Kernel, ...]
    activation_memory: int
    sources: int
    distinct_sources: int

    @property
    def traffic(self) -> int | None:
        """Return the bytes of activations that the kernels read and write; None: not known."""
        both = ((kernel.bytes_read, kernel.bytes_written) for kernel in self.kernels)
        return _sum(count for pair in both for count in pair)

    @property
    def constant_bytes(self) -> int | None:
        """Return the bytes of constants that the kernels read; None: not known."""
        return _sum(kernel.constant_bytes for kernel in self.kernels)

    @property
    def bytes_moved(self) -> int | None:
        """Return the bytes that the kernels read and write, constants included."""
        return _sum((self.traffic, self.constant_bytes))

    @property
    def count_text(self) -> str:
        """Return the number of kernels in words."""
        return f"{len(self.kernels)} kernel{'' if len(self.kernels) == 1 else 's'}"

    def __str__(self) -> str:
        moved = "bytes read and written are not known"
        if self.bytes_moved is not None and self.constant_bytes is not None:
            moved = (
                f"{size_text(self.bytes_moved)} read and written in a call, of which "
                f"{size_text(self.constant_bytes)} constants"
            )
        return (
            f"{self.count_text}, {moved}; {size_text(self.activation_memory)} of activation memory"
        )

    def tables(self) -> Iterator[Table]:
        """Yield a table of the kernels, with their totals."""
        rows = [
            (
                *(str(index), kernel.kind, ", ".join(kernel.operators), ", ".join(kernel.nodes)),
                *map(_cell, (kernel.bytes_read, kernel.bytes_written, kernel.constant_bytes)),
                kernel.name,
            )
            for index, kernel in enumerate(self.kernels)
        ]
        heads = ("", "kind", "operators", "nodes", *KERNEL_BYTES, "name in the engine")
        yield Table("Kernels of a call", heads, rows, ["", *KERNEL_BYTES])


def read_kernels(engine: bytes | memoryview) -> EngineKernels | None:
    """Read the kernels of a serialized engine.

    Args:
        engine: The engine itself, not its blob. Its text is parsed; its weights are only passed
            over, once.

    Returns:
        None if they are not known: another library's engine, a network that is built at load
        time, a damaged engine, or a text in another form than TensorRT-RTX 1.5 to 1.7 write.
    """
    try:
        main, *fusions = programs(_whole(engine))
        reader = _Reader(main, fusions)
        kernels = tuple(reader.kernels())
    except ValueError:
        return None
    sources = [kernel.source for kernel in kernels if kernel.source]
    return EngineKernels(kernels, reader.activation_memory, len(sources), len(set(sources)))


def lost_biases(engine: bytes | memoryview) -> tuple[str, ...] | None:
    """Return the results of the matrix products that may lose their bias, by tensor name.

    They have the bias inside (``docs/internals/upstream/rtx_lost_bias.md``). The native builder
    reads the same of an engine (``build/lost_bias.cpp``).

    Returns:
        None if they are not known; see ``read_kernels``.
    """
    try:
        found = list(programs(_whole(engine)))
        _check_versions(found)
    except ValueError:
        return None
    products = (part for each in found for part in each.main.blocks("fully_connected"))
    return tuple(
        (part.list("output") or [""])[0] for part in products if part.text("bias") == "true"
    )


def _check_versions(found: list[Program]) -> None:
    versions = [each.header.text("version") for each in found]
    if versions != [_VERSION, *[_FUSION_VERSION] * (len(found) - 1)]:
        raise ValueError(f"texts of the versions {versions}")


def _whole(engine: bytes | memoryview) -> memoryview:
    """Return a TensorRT-RTX engine, without what follows it."""
    view = memoryview(engine).cast("B")
    if len(view) < _START.size:
        raise ValueError("it has no start")
    magic, size = _START.unpack_from(view)
    if magic != _MAGIC or size > len(view):
        raise ValueError("it is no TensorRT-RTX engine, or not a whole one")
    return view[:size]


@dataclass(frozen=True)
class _Tensor:
    nbytes: int | None
    is_constant: bool
    is_on_host: bool


_UNKNOWN: Final = _Tensor(None, is_constant=False, is_on_host=False)


class _Reader:
    """Reads a program and the fusions that it launches."""

    def __init__(self, program: Program, fusions: list[Program]) -> None:
        _check_versions([program, *fusions])
        self._main, self._fusions = program.main, fusions
        self._regions = {block.text("name"): block for block in program.header.blocks("region")}
        if not {region.text("place") for region in self._regions.values()} <= _PLACES:
            raise ValueError("a region is in an unknown place")
        self.activation_memory = sum(
            _number(region.text("size"))
            for region in self._regions.values()
            if region.text("place") == "accelerator" and not _is_constant(region)
        )
        self._tensors: dict[str, _Tensor] = {}
        for block in program.descriptors.blocks("tensor", "sub_tensor"):
            self._tensors[block.text("name")] = self._tensor(block)

    def _tensor(self, block: Block) -> _Tensor:
        nbytes, base = _nbytes(block), block.text("base")
        if base:  # A view; its base is described before it.
            if base not in self._tensors:
                raise ValueError(f"a view on {base}, which is not described")
            return replace(self._tensors[base], nbytes=nbytes)
        region, payload = self._region(block), block.text("const_payload_size")
        if region is not None and region.text("place") == "host":
            return _Tensor(nbytes, is_constant=False, is_on_host=True)
        is_constant = region is not None and _is_constant(region)
        if is_constant != bool(payload) or (payload and _number(payload) != nbytes):
            raise ValueError(f"constant {block.text('name')} has no data, or others")
        return _Tensor(nbytes, is_constant, is_on_host=False)

    def _region(self, block: Block) -> Block | None:
        """Return the place of a tensor; None if the caller passes it."""
        name = block.text("region")
        if name and name not in self._regions:
            raise ValueError(f"a tensor in {name}, which is not described")
        return self._regions.get(name)

    def kernels(self) -> Iterator[Kernel]:
        """Yield the launches of the program: each statement that writes to memory of the GPU."""
        for kind, statement in self._main.fields:
            if not isinstance(statement, Block):
                raise ValueError(f"{kind} is no statement")
            outputs = _arguments(statement, "output")
            if not outputs and kind not in _CONTROL:
                raise ValueError(f"{kind} has no known outputs")
            if not all(self._tensors.get(name, _UNKNOWN).is_on_host for name in outputs):
                yield self._kernel(kind, statement, outputs)

    def _kernel(self, kind: str, statement: Block, outputs: list[str]) -> Kernel:
        name, inputs = statement.text("name"), _arguments(statement, "input")
        read = {key: self._tensors.get(key, _UNKNOWN) for key in inputs}
        read = {key: tensor for key, tensor in read.items() if not tensor.is_on_host}
        constants = [key for key, tensor in read.items() if tensor.is_constant]
        written = {key: self._tensors.get(key, _UNKNOWN) for key in outputs}
        parts = self._parts(kind, statement)
        return Kernel(
            kind,
            name,
            tuple(_operator(part) for part, _ in parts) or _operators(kind, name),
            _nodes([*(part for _, part in parts), statement], constants),
            _sum(tensor.nbytes for tensor in read.values() if not tensor.is_constant),
            _sum(tensor.nbytes for tensor in written.values()),
            _sum(tensor.nbytes for tensor in read.values() if tensor.is_constant),
            statement.text("fqn"),
        )

    def _parts(self, kind: str, statement: Block) -> list[tuple[str, Block]]:
        """Return the statements of the fusion that a statement launches; empty if unknown."""
        index = statement.text(_FUSION_INDEX.get(kind, ""))
        if not index or _number(index) >= len(self._fusions):
            return []
        fusion = self._fusions[_number(index)]
        for end in ("input", "output"):
            if len(fusion.header.list(f"{end}s")) != len(_arguments(statement, end)):
                return []
        return [(key, part) for key, part in fusion.main.fields if isinstance(part, Block)]


def _is_constant(region: Block) -> bool:
    return region.text("constant") == "true"


def _arguments(statement: Block, end: str) -> list[str]:
    return statement.list(f"{end}_args") or statement.list(end)


def _operators(kind: str, name: str) -> tuple[str, ...]:
    if fused := _FUSED.fullmatch(name):
        return tuple(map(_operator, re.findall("[A-Z][a-z0-9]*", fused.group(1))))
    if kind in ("function", "runtime_function", "runtime_fusion"):
        return (name.strip("_"),) if name else ()
    return (_operator(kind),)


def _operator(name: str) -> str:
    return _OPERATORS.get(name.lower(), name.lower())


def _nodes(statements: Iterable[Block], constants: Iterable[str]) -> tuple[str, ...]:
    names: list[str] = []
    for statement in statements:
        outputs = _arguments(statement, "output")
        names += [statement.text("name"), *(name for name in outputs if _VALUE.search(name))]
    return nodes_named((*names, *constants))


def nodes_named(names: Iterable[str]) -> tuple[str, ...]:
    """Return the partition's nodes that names of layers and tensors in an engine contain."""
    found = (_LAYER.search(name) or _LAYER_START.match(name) for name in names)
    return tuple(dict.fromkeys(match.group(1) for match in found if match))


def _nbytes(block: Block) -> int | None:
    """Return the bytes of a tensor; None with a dynamic size or an unknown type."""
    dims, bits = block.list("dims"), _BITS.get(block.text("type"))
    if block.get("dims") is None or len(dims) > 64:
        raise ValueError("a tensor has no known sizes")
    if bits is None or not all(size.isdecimal() for size in dims):
        return None
    strides = block.list("strides")
    strides = strides if len(strides) == len(dims) else [""] * len(dims)
    # The elements of a dimension of stride 0 are the same ones.
    sizes = [_number(size) for size, step in zip(dims, strides, strict=True) if step != "0"]
    return -(-math.prod(sizes) * bits // 8)


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 19:
        raise ValueError(f"{text[:30]!r} is no size")
    return int(text)


def _cell(count: int | None) -> str:
    if count is None:
        return "unknown"
    return size_text(count) if count else ""


def _sum(counts: Iterable[int | None]) -> int | None:
    """Add counts; None if one is None."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
