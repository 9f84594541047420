"""The interface of a builder: it takes a request, and returns the blob of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trt_et.engines.progress import BuildMonitor
from trt_et.options import BuildOptions

if TYPE_CHECKING:
    import torch
    from torch._ops import OpOverload

    from trt_et.engine_program.program import EngineProgram
    from trt_et.graph.fragment import SupportCheck


@dataclass(frozen=True)
class BuildRequest:
    """One engine to build.

    Attributes:
        partition: The partition's name, for messages.
        program: The partition in plain ATen, with its bindings.
        device_id: Index of the GPU that the engine is for.
        options: The caller's options.
        timings: A folder for the builder's timing cache; None: no timing cache.
        monitor: Takes the builder's progress, and can stop the build.
    """

    partition: str
    program: EngineProgram
    device_id: int
    options: BuildOptions
    timings: Path | None = None
    monitor: BuildMonitor = field(default_factory=BuildMonitor, compare=False, repr=False)


class EngineBuilder(ABC):
    """Builds one engine for one partition. A builder has a ``name`` and a ``build`` method.

    Attributes:
        name: The builder's name, for the blob and for messages.
        verified: True: the backend does not compute the checksum of a blob again that this process
            has just built.
    """

    name: str = ""
    verified: bool = False

    @abstractmethod
    def build(self, request: BuildRequest) -> bytes:
        """Return the engine's blob (``trt_et.engine_info.encode_blob``).

        Its bindings must equal ``request.program.bindings``, also in order; the backend checks it.

        Raises:
            BuilderError: The engine cannot be built.
        """

    def fingerprint(self) -> str:
        """Return everything that decides the engine except the request; empty: it is not cached.

        Library versions, for example; it should not import the libraries.
        """
        return ""

    def check_options(self, options: BuildOptions) -> None:
        """Check the options; the partitioner calls it when it is made.

        Raises:
            OptionError: This builder cannot fulfil them.
        """
        del options

    def make_support_check(self, options: BuildOptions) -> SupportCheck | None:
        """Return the builder's own check; None: the check by Torch-TensorRT's converters.

        The answers of the own check are remembered under the builder's fingerprint.
        """
        del options
        return None

    def named_data(self, program: EngineProgram, blob: bytes) -> Mapping[str, torch.Tensor]:
        """Return the tensors that a blob refers to, by key; they are stored once for all blobs."""
        del program, blob
        return {}

    @property
    def made_by(self) -> str:
        """Return what fills the networks of its engines; empty: Torch-TensorRT's converters."""
        return ""

    @property
    def without_int8(self) -> Collection[OpOverload]:
        """Return the operators that its library has no int8 kernels for.

        The partitioner warns of the quantized calls of these.
        """
        return ()
