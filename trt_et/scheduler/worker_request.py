"""Build requests as plain values, for builds in other processes and on other machines.

A :class:`WorkerRequest` can be pickled and needs nothing but the folder that its weights are in.
The engine that is built from it is the same, byte for byte, as one built in the process that asked.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

import torch
from torch.export.graph_signature import InputKind

from trt_et.blob.model import Binding
from trt_et.builders.base import BuildRequest, EngineBuilder
from trt_et.builders.monitor import BuildMonitor
from trt_et.builders.registry import BUILDER_NAMES
from trt_et.errors import BuilderError
from trt_et.lowering.in_place_buffers import InPlaceBuffer
from trt_et.lowering.lowered_partition import LoweredPartition, ProfileShapes
from trt_et.options import BuildOptions
from trt_et.scheduler.program_bytes import NodeName, load_program, node_names, save_program
from trt_et.scheduler.weights_file import StoredTensor, WeightsWriter, read_weights

__all__ = ["WorkerRequest", "pack_request", "unpack_request"]


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
        inputs: See :class:`trt_et.lowering.lowered_partition.LoweredPartition`.
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
    nodes: tuple[NodeName, ...] = field(repr=False)
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
            raise BuilderError(
                f"custom object {spec.target} cannot go into an engine; leave the operator that "
                "takes it to the CPU (excluded_ops=...)"
            )
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
        program=save_program(program),
        nodes=node_names(program.graph),
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
    program = load_program(request.program, request.nodes, request.partition)
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


_BUILT_IN: Final = frozenset(BUILDER_NAMES)


def _sendable(builder: EngineBuilder) -> str | EngineBuilder:
    """The name of a built-in builder, any other itself."""
    built_in = type(builder).__module__.startswith("trt_et.builders.")
    return builder.name if built_in and builder.name in _BUILT_IN else builder
