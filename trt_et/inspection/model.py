"""What inspection reports about a program."""

from __future__ import annotations

from dataclasses import dataclass

from trt_et.blob.model import EngineInfo
from trt_et.inspection.pte import Call, TensorValue

__all__ = ["CopyInfo", "DelegateInfo", "DeviceUse", "MethodInfo", "ProgramInfo"]


@dataclass(frozen=True)
class DelegateInfo:
    """One delegate of a method.

    Attributes:
        backend_id: The backend that runs it.
        compile_specs: Its compile specs, in order.
        size: Bytes of its blob.
        engine: Facts of its engine; None for other backends, and where the blob is unreadable.
        engine_size: Bytes of the engine itself; 0 where there is none.
        problem: Why the blob is unreadable; empty where it is fine.
        blob: Its bytes; a view of the file's where that is no ``bytes`` object.
        operators: What the engine computes, where the file says it: reference engines only.
        offset: Where the blob begins in the file.
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
    """One method: what it delegates, what stays on the CPU, and where its tensors are.

    Attributes:
        name: Its name.
        delegates: Its delegates.
        cpu_operators: The operators that it calls outside of delegates, once each.
        devices: Tensors and planned memory of each device.
        input_values: Its inputs, as indices into ``values``.
        output_values: Its outputs, likewise.
        copies: The copies between host and GPU in each call.
        calls: Its instructions, in order.
        values: The tensors that instructions refer to by index; None for what is no tensor.
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
        """Its inputs; None for one that is no tensor."""
        return tuple(self.values[index] for index in self.input_values)

    @property
    def outputs(self) -> tuple[TensorValue | None, ...]:
        """Its outputs; None for one that is no tensor."""
        return tuple(self.values[index] for index in self.output_values)

    @property
    def operator_calls(self) -> dict[str, int]:
        """How often each operator is called on the CPU, copies between devices not counted."""
        counts: dict[str, int] = {}
        for call in self.calls:
            if call.kind == "kernel":
                name = self.cpu_operators[call.index]
                if not name.startswith("et_copy::"):
                    counts[name] = counts.get(name, 0) + 1
        return counts


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
        """What is wrong with its engines, one sentence each."""
        return tuple(
            f"method {method.name!r}, delegate {index}: {delegate.problem}"
            for method in self.methods
            for index, delegate in enumerate(method.delegates)
            if delegate.problem
        )
