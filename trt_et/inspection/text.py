"""A program's facts as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from trt_et.blob.model import Binding, EngineInfo
from trt_et.inspection.model import DelegateInfo, MethodInfo, ProgramInfo
from trt_et.inspection.pte import TensorValue

__all__ = ["binding_text", "count_operators", "describe", "size_text", "targets_text"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def describe(program: ProgramInfo) -> Iterator[str]:
    """The lines that ``trt-et inspect`` prints."""
    for method in program.methods:
        yield from _method(method)
    if program.constant_bytes:
        yield f"constants of CPU kernels: {size_text(program.constant_bytes)}"
    if program.named_data:
        size = sum(size for _, size in program.named_data)
        yield f"named data of delegates: {len(program.named_data)} entries, {size_text(size)}"


def size_text(count: int) -> str:
    """A size for people, such as ``1.5 MiB``."""
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{count} B"


def targets_text(info: EngineInfo) -> str:
    """The GPUs that an engine is for."""
    device = "no GPU recorded" if info.device_id is None else f"cuda:{info.device_id}"
    facts = [device, info.gpu_name, ", ".join(info.compute_capabilities)]
    return ", ".join(fact for fact in facts if fact)


def binding_text(binding: Binding) -> str:
    """A binding's name, type and shape."""
    return f"{binding.name} {binding.dtype}{list(binding.shape)}"


def count_operators(operators: tuple[str, ...]) -> dict[str, int]:
    """How often each operator occurs, in the order of their first occurrence."""
    counts: dict[str, int] = {}
    for operator in operators:
        counts[operator] = counts.get(operator, 0) + 1
    return counts


def _method(method: MethodInfo) -> Iterator[str]:
    yield f"method {method.name}"
    for kind, tensors in (("input", method.inputs), ("output", method.outputs)):
        for index, tensor in enumerate(tensors):
            yield f"  {kind} {index}: {_tensor(tensor)}"
    for index, delegate in enumerate(method.delegates):
        yield from _delegate(index, delegate)
    calls = ", ".join(_counted(method.operator_calls)) or "nothing"
    yield f"  on the CPU: {calls}"
    for use in method.devices:
        yield f"  {use.device}: {use.tensors} tensors, {size_text(use.planned_bytes)} planned"
    for direction, name in (("h2d", "to the GPU"), ("d2h", "to the host")):
        sizes = [copy.nbytes for copy in method.copies if copy.direction == direction]
        if sizes:
            yield f"  copies {name} in each call: {len(sizes)}, {size_text(sum(sizes))}"


def _tensor(tensor: TensorValue | None) -> str:
    if tensor is None:
        return "no tensor"
    most = "at most " if tensor.is_dynamic else ""
    return f"{tensor.dtype} {most}{list(tensor.sizes)} on {tensor.device}"


def _delegate(index: int, delegate: DelegateInfo) -> Iterator[str]:
    line = f"  delegate {index}: {delegate.backend_id}, {size_text(delegate.size)}"
    info = delegate.engine
    if info is not None:
        line += f", engine of {info.builder or 'an unknown builder'} {info.library_version}"
        line = f"{line.rstrip()} for {targets_text(info)}"
    if delegate.problem:
        line += f", DAMAGED: {delegate.problem}"
    yield line
    aliases = {alias.output: alias.input for alias in info.aliases} if info else {}
    for binding in info.bindings if info else ():
        yield f"    {_binding(binding, aliases.get(binding.name))}"
    if delegate.operators:
        yield f"    operators: {', '.join(_counted(count_operators(delegate.operators)))}"


def _binding(binding: Binding, written_into: str | None) -> str:
    kind = "in " if binding.is_input else "out"
    text = f"{kind} {binding.name}: {binding.dtype} {list(binding.shape)}"
    if binding.is_dynamic:
        ranges = zip(binding.min_shape or (), binding.max_shape or (), strict=False)
        text += " (" + " x ".join(f"{low}..{high}" for low, high in ranges) + ")"
    return f"{text}, written into {written_into}" if written_into else text


def _counted(counts: dict[str, int]) -> Iterator[str]:
    for name, count in counts.items():
        yield name if count == 1 else f"{count} x {name}"
