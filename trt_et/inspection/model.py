"""Facts of a program."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from trt_et.blob.model import EngineInfo

__all__ = [
    "Call",
    "CopyInfo",
    "DelegateInfo",
    "DeviceUse",
    "MethodInfo",
    "ProgramInfo",
    "TensorValue",
]


@dataclass(frozen=True)
class TensorValue:
    """A tensor of a method.

    Attributes:
        dtype: Its type, such as ``float32``.
        sizes: Its sizes; the largest ones if they are dynamic.
        is_dynamic: True if its sizes may be smaller.
        device: ``cpu`` or ``cuda:<index>``.
        nbytes: Its bytes at these sizes.
        is_constant: True if the file holds its data.
    """

    dtype: str
    sizes: tuple[int, ...]
    is_dynamic: bool
    device: str
    nbytes: int
    is_constant: bool


@dataclass(frozen=True)
class Call:
    """A call of an operator (``kernel``) or a ``delegate``, by its index, with its values."""

    kind: str
    index: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class DelegateInfo:
    """One delegate of a method.

    Attributes:
        backend_id: The backend that runs it.
        compile_specs: Its compile specs, in order.
        size: Bytes of its blob.
        engine: Facts of its engine; None for other backends and for an unreadable blob.
        engine_size: Bytes of the engine itself; 0 without one.
        problem: Why the blob is unreadable; empty if it is intact.
        blob: Its bytes; a view unless the program was passed as ``bytes``.
        operators: The operators of a reference engine. Other engines do not name theirs.
        offset: Start of the blob in the file.
    """

    backend_id: str
    compile_specs: tuple[tuple[str, bytes], ...]
    size: int
    engine: EngineInfo | None
    engine_size: int
    problem: str
    blob: bytes | memoryview
    operators: tuple[str, ...] = ()
    offset: int = 0


@dataclass(frozen=True)
class DeviceUse:
    """Tensors and planned bytes of a method on one device, such as ``cuda:1`` or ``cpu``."""

    device: str
    tensors: int
    planned_bytes: int


@dataclass(frozen=True)
class CopyInfo:
    """One copy between host and GPU that ExecuTorch does in every call of a method.

    Attributes:
        direction: ``h2d`` or ``d2h``.
        device: The GPU.
        nbytes: Its bytes, at the largest sizes.
    """

    direction: str
    device: str
    nbytes: int


@dataclass(frozen=True)
class MethodInfo:
    """One method: its delegates, the operators on the CPU, and the devices of its tensors.

    Attributes:
        name: Its name.
        delegates: Its delegates.
        cpu_operators: The operators that it calls outside of delegates, once each.
        devices: Tensors and planned memory of each device.
        input_values: Its inputs, as indices into ``values``.
        output_values: Its outputs, as indices into ``values``.
        copies: The copies between host and GPU in each call.
        calls: Its calls, in order.
        values: The tensors that calls refer to by index; None for other values.
    """

    name: str
    delegates: tuple[DelegateInfo, ...]
    cpu_operators: tuple[str, ...]
    devices: tuple[DeviceUse, ...]
    input_values: tuple[int, ...] = ()
    output_values: tuple[int, ...] = ()
    copies: tuple[CopyInfo, ...] = ()
    calls: tuple[Call, ...] = ()
    values: tuple[TensorValue | None, ...] = ()

    @property
    def inputs(self) -> tuple[TensorValue | None, ...]:
        """Return the inputs; None for one that is no tensor."""
        return tuple(self.values[index] for index in self.input_values)

    @property
    def outputs(self) -> tuple[TensorValue | None, ...]:
        """Return the outputs; None for one that is no tensor."""
        return tuple(self.values[index] for index in self.output_values)

    @property
    def operator_calls(self) -> dict[str, int]:
        """Count the calls of each operator on the CPU, without copies between devices."""
        names = (self.cpu_operators[call.index] for call in self.calls if call.kind == "kernel")
        return dict(Counter(name for name in names if not name.startswith("et_copy::")))


@dataclass(frozen=True)
class ProgramInfo:
    """One ``.pte``.

    Attributes:
        methods: Its methods.
        size: Bytes of the file.
        constant_bytes: Bytes of constants that CPU kernels use.
        named_data: Names and sizes of data that backends share, such as XNNPACK's weights.
    """

    methods: tuple[MethodInfo, ...]
    size: int
    constant_bytes: int
    named_data: tuple[tuple[str, int], ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """Describe each damaged engine in one sentence."""
        return tuple(
            f"method {method.name!r}, delegate {index}: {delegate.problem}"
            for method in self.methods
            for index, delegate in enumerate(method.delegates)
            if delegate.problem
        )
