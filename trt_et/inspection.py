"""What a ``.pte`` holds: delegates, their engines, and the devices of its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from mmap import mmap
from typing import Any

from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.schema import DataLocation, ExecutionPlan, Program, Tensor

from trt_et.engine_info import EngineInfo, decode_blob
from trt_et.errors import BlobError

__all__ = ["DelegateInfo", "DeviceUse", "MethodInfo", "inspect_program"]

BACKEND_ID = "TensorRTBackend"


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
    """

    backend_id: str
    compile_specs: tuple[tuple[str, bytes], ...]
    size: int
    engine: EngineInfo | None
    engine_size: int
    problem: str
    blob: bytes | memoryview


@dataclass(frozen=True)
class DeviceUse:
    """Tensors and planned bytes of a method on one device, such as ``cuda:1`` or ``cpu``."""

    device: str
    tensors: int
    planned_bytes: int


@dataclass(frozen=True)
class MethodInfo:
    """One method: what it delegates, what stays on the CPU, and where its tensors are."""

    name: str
    delegates: tuple[DelegateInfo, ...]
    cpu_operators: tuple[str, ...]
    devices: tuple[DeviceUse, ...]


def inspect_program(pte: bytes | memoryview | mmap) -> tuple[MethodInfo, ...]:
    """Read a ``.pte`` with ExecuTorch's own deserializer.

    Args:
        pte: The file's bytes. Of a mapped file or another view, engines are not copied.
    """
    data: Any = pte if isinstance(pte, bytes) else memoryview(pte)
    program: Program = deserialize_pte_binary(data).program
    return tuple(_method(program, plan) for plan in program.execution_plan)


def _method(program: Program, plan: ExecutionPlan) -> MethodInfo:
    delegates = []
    for delegate in plan.delegates:
        if delegate.processed.location is not DataLocation.INLINE:
            raise BlobError("a delegate's data was not restored by ExecuTorch's deserializer")
        data = program.backend_delegate_data[delegate.processed.index].data
        blob = data if isinstance(data, memoryview) else bytes(data)
        specs = tuple((spec.key, bytes(spec.value)) for spec in delegate.compile_specs)
        engine, size, problem = None, 0, ""
        if delegate.id == BACKEND_ID:
            try:
                decoded = decode_blob(blob)
                engine, size = decoded.info, len(decoded.engine)
            except BlobError as error:
                problem = str(error)
        delegates.append(DelegateInfo(delegate.id, specs, len(blob), engine, size, problem, blob))
    operators = tuple(f"{op.name}.{op.overload}".rstrip(".") for op in plan.operators)
    return MethodInfo(plan.name, tuple(delegates), operators, _devices(plan))


def _devices(plan: ExecutionPlan) -> tuple[DeviceUse, ...]:
    tensors: dict[str, int] = {}
    for value in plan.values:
        if isinstance(value.val, Tensor):
            extra = value.val.extra_tensor_info
            device = _device_name(extra.device_type, extra.device_index) if extra else "cpu"
            tensors[device] = tensors.get(device, 0) + 1
    placed = {
        entry.buffer_idx: _device_name(entry.device_type, entry.device_index)
        for entry in plan.non_const_buffer_device or ()
    }
    planned: dict[str, int] = {}
    for index, size in enumerate(plan.non_const_buffer_sizes):
        device = placed.get(index, "cpu")
        planned[device] = planned.get(device, 0) + int(size)
    return tuple(
        DeviceUse(device, tensors.get(device, 0), planned.get(device, 0))
        for device in sorted({*tensors, *planned})
    )


def _device_name(kind: Any, index: int) -> str:  # noqa: ANN401
    name = str(kind.name).lower()
    return name if name == "cpu" else f"{name}:{index}"
