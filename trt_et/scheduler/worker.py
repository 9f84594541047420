"""Build requests as plain values, for builds in other processes and on other machines.

A :class:`WorkerRequest` can be pickled and needs nothing but the folder that its weights are in.
:func:`build_in_worker` is what runs elsewhere: it builds the engine, writes it into that folder,
and returns a small :class:`BuildResult`. The engine is the same, byte for byte, as one built in
the process that asked for it.
"""

from __future__ import annotations

import copy
import io
import operator
import os
import platform
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch
from crc32c import crc32c
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, GraphModule, Node, map_arg

from trt_et.blob.model import Binding
from trt_et.builders.base import BuildRequest, EngineBuilder
from trt_et.builders.monitor import BuildMonitor
from trt_et.builders.registry import BUILDER_NAMES, make_builder
from trt_et.errors import BuilderError
from trt_et.lowering.in_place_buffers import InPlaceBuffer
from trt_et.lowering.lower import LoweredPartition, ProfileShapes
from trt_et.options import BuildOptions
from trt_et.scheduler.weights_file import StoredTensor, WeightsWriter, read_weights

__all__ = ["BuildResult", "WorkerRequest", "build_in_worker", "pack_request", "unpack_request"]


@dataclass(frozen=True)
class _NodeName:
    """A node's name; of the ``getitem`` of a node with several outputs, also which output it is."""

    name: str
    source: str = ""
    index: int = -1


@dataclass(frozen=True)
class WorkerRequest:
    """One engine to build, as a plain value.

    Attributes:
        partition: The partition's name, for messages.
        builder: A built-in builder's name, or the caller's own builder.
        device_id: Index of the GPU that the engine is for.
        options: What the caller asked for.
        program: The partition in plain ATen, without its weights (``torch.export.save``).
        nodes: Its nodes, in order.
        inputs: See :class:`trt_et.lowering.lower.LoweredPartition`.
        outputs: Likewise.
        names: Likewise.
        profiles: Likewise.
        aliased_outputs: Likewise.
        weights: The file that holds the weights.
        state: The program's state dictionary in that file.
        constants: Its other constants.
        engine: Path of the file to write the engine's blob to, beside the weights.
        timings: See :class:`trt_et.builders.BuildRequest`.
        versions: Of the libraries that read the program; the other side must have the same.
    """

    partition: str
    builder: str | EngineBuilder
    device_id: int
    options: BuildOptions
    program: bytes = field(repr=False)
    nodes: tuple[_NodeName, ...] = field(repr=False)
    inputs: tuple[Binding, ...] = field(repr=False)
    outputs: tuple[Binding, ...] = field(repr=False)
    names: Mapping[str, str] = field(repr=False)
    profiles: tuple[ProfileShapes, ...] = field(repr=False)
    aliased_outputs: tuple[InPlaceBuffer, ...] = field(repr=False)
    weights: str
    state: Mapping[str, StoredTensor] = field(repr=False)
    constants: Mapping[str, StoredTensor] = field(repr=False)
    engine: str
    timings: Path | None
    versions: Mapping[str, str]


@dataclass(frozen=True)
class BuildResult:
    """What became of a request; either an engine's file or an error.

    Exceptions of other people's builders may not survive a pickle, so errors travel as text.

    Attributes:
        path: The engine's blob; empty where there is none.
        size: Its bytes.
        checksum: Its CRC-32C.
        seconds: How long the build took.
        error: Name of the exception's class; empty where there was none.
        message: What it said.
        trace: Its traceback.
    """

    path: str = ""
    size: int = 0
    checksum: int = 0
    seconds: float = 0.0
    error: str = ""
    message: str = ""
    trace: str = field(default="", repr=False)


def pack_request(
    builder: EngineBuilder, request: BuildRequest, weights: WeightsWriter, engine: Path
) -> WorkerRequest:
    """Make a plain value of a request; its weights are appended to ``weights`` and flushed.

    Args:
        builder: What shall build it.
        request: The request.
        weights: Where its weights go; requests may share one file.
        engine: The file that the engine's blob shall be written to.

    Raises:
        BuilderError: The partition holds something that cannot be sent, or the weights cannot be
            written.
    """
    program = request.lowered.program
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.CUSTOM_OBJ:
            raise BuilderError(f"custom object {spec.target} cannot go into an engine")
    try:
        state = {name: weights.add(name, value) for name, value in program.state_dict.items()}
        constants = {name: weights.add(name, value) for name, value in program.constants.items()}
        weights.flush()
    except OSError as error:
        raise BuilderError(
            f"the weights of partition {request.partition} cannot be written to {weights.path}: "
            f"{error}; choose a folder with more room (scratch=...)"
        ) from error
    return WorkerRequest(
        partition=request.partition,
        builder=_sendable(builder),
        device_id=request.device_id,
        options=request.options,
        program=_save(program),
        nodes=_node_names(program.graph),
        inputs=request.lowered.inputs,
        outputs=request.lowered.outputs,
        names=dict(request.lowered.names),
        profiles=request.lowered.profiles,
        aliased_outputs=request.lowered.aliased_outputs,
        weights=str(weights.path),
        state=state,
        constants=constants,
        engine=str(engine),
        timings=request.timings,
        versions=_versions(),
    )


def unpack_request(request: WorkerRequest) -> BuildRequest:
    """The request, with its weights mapped from their file.

    Its build stops when the folder of the weights is removed.

    Raises:
        BuilderError: The weights are incomplete, or the program did not survive.
    """
    _check_machine(request)
    program = _with_nodes(torch.export.load(io.BytesIO(request.program)), request)
    program._state_dict = read_weights(Path(request.weights), request.state)
    program._constants = {**read_weights(Path(request.weights), request.constants)}
    lowered = LoweredPartition(
        program,
        request.inputs,
        request.outputs,
        request.names,
        profiles=request.profiles,
        aliased_outputs=request.aliased_outputs,
    )
    return BuildRequest(
        request.partition,
        lowered,
        request.device_id,
        request.options,
        timings=request.timings,
        monitor=BuildMonitor(stop=_Gone(Path(request.weights).parent)),
    )


def _versions() -> dict[str, str]:
    return {"torch": str(torch.__version__), "executorch": version("executorch")}


def _check_machine(request: WorkerRequest) -> None:
    for name, own in _versions().items():
        wanted = request.versions[name]
        if own != wanted:
            raise BuilderError(
                f"{name} is {own} on {platform.node()}, but {wanted} where the program is exported;"
                " engines may be built elsewhere with the same versions only"
            )
    if not Path(request.weights).exists():
        raise BuilderError(
            f"{request.weights} is not there on {platform.node()}: machines that build for each "
            "other need a folder that all of them share (scratch=...), and the export must not "
            "have ended"
        )


class _Gone:
    """Whether a folder is gone, looked up at most twice a second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._next = 0.0
        self._gone = False

    def __call__(self) -> bool:
        now = time.monotonic()
        if not self._gone and now >= self._next:
            self._gone = not self._folder.exists()
            self._next = now + 0.5
        return self._gone


def build_in_worker(request: WorkerRequest) -> BuildResult:
    """Build an engine and write it to ``request.engine``, all of it or nothing; never raises.

    Runs in worker processes: it is found by its name, and needs nothing of the process that asked.
    """
    start = time.perf_counter()
    # A second worker may be given the same request, where a scheduler believes the first one dead.
    part = Path(f"{request.engine}.{platform.node()}.{os.getpid()}.part")
    try:
        builder = make_builder(request.builder)
        with part.open("xb") as file:
            blob = builder.build(unpack_request(request))
            if not isinstance(blob, bytes):
                raise BuilderError(
                    f"it returned {type(blob).__name__}, not the bytes of an engine blob"
                )
            file.write(blob)
        part.replace(request.engine)
    except Exception as error:
        # Whatever a builder raises goes back as text.
        return BuildResult(
            seconds=time.perf_counter() - start,
            error=type(error).__name__,
            message=str(error),
            trace="".join(traceback.format_exception(error)),
        )
    finally:
        part.unlink(missing_ok=True)
    seconds = time.perf_counter() - start
    return BuildResult(request.engine, len(blob), int(crc32c(blob)), seconds)


_BUILT_IN: Final = frozenset(BUILDER_NAMES)


def _sendable(builder: EngineBuilder) -> str | EngineBuilder:
    """The name of a built-in builder, any other itself."""
    built_in = type(builder).__module__.startswith("trt_et.builders.")
    return builder.name if built_in and builder.name in _BUILT_IN else builder


# The program.


def _save(program: ExportedProgram) -> bytes:
    shell = copy.copy(program)
    shell._state_dict = _without_values(program.state_dict)
    shell._constants = _without_values(program.constants)
    used = _symbols(program.graph)
    shell._range_constraints = {
        symbol: limits for symbol, limits in program.range_constraints.items() if symbol in used
    }
    buffer = io.BytesIO()
    torch.export.save(shell, buffer)
    return buffer.getvalue()


def _without_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _meta(value) for name, value in values.items()}


def _meta(value: torch.Tensor) -> torch.Tensor:
    meta = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(meta, requires_grad=value.requires_grad)
    return meta


def _symbols(graph: Graph) -> set[Any]:
    """The symbols in the sizes of a graph's values."""
    found: set[Any] = set()
    for node in graph.nodes:
        values = node.meta.get("val")
        for value in values if isinstance(values, tuple | list) else (values,):
            sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
            for size in sizes:
                if isinstance(size, torch.SymInt):
                    found |= size.node.expr.free_symbols
    return found


def _node_names(graph: Graph) -> tuple[_NodeName, ...]:
    return tuple(
        _NodeName(node.name, node.args[0].name, node.args[1])
        if node.target is operator.getitem
        else _NodeName(node.name)
        for node in graph.nodes
    )


def _with_nodes(program: ExportedProgram, request: WorkerRequest) -> ExportedProgram:
    """The program with the very nodes that were sent, by name and in order.

    ``torch.export.load`` renames nodes with several outputs and gives each output a ``getitem``,
    used or not. Names end up in engines.
    """
    if _node_names(program.graph) == request.nodes:
        return program
    others = iter([n for n in program.graph.nodes if n.target is not operator.getitem])
    sources: dict[str, Node] = {}
    new: dict[Node, Node] = {}
    graph = Graph()
    try:
        for known in request.nodes:
            node = _output(sources[known.source], known.index) if known.source else next(others)
            sources[known.name] = node
            args, kwargs = map_arg((node.args, node.kwargs), new.__getitem__)
            new[node] = graph.create_node(node.op, node.target, args, kwargs, known.name)
            new[node].meta = dict(node.meta)
        graph.lint()
    except (KeyError, StopIteration, RuntimeError) as error:
        raise BuilderError(
            f"partition {request.partition} did not survive torch.export.save and load "
            f"({error!r}); build it in this process (executor=None)"
        ) from error
    return ExportedProgram(
        root=GraphModule(torch.nn.Module(), graph),
        graph=graph,
        graph_signature=program.graph_signature,
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=None,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _output(source: Node, index: int) -> Node:
    return next(
        user for user in source.users if user.target is operator.getitem and user.args[1] == index
    )
