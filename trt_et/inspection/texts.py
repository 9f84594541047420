"""Facts of engines as short texts."""

from __future__ import annotations

from collections.abc import Mapping

from trt_et.blob.model import Binding, EngineInfo


def engine_text(info: EngineInfo) -> str:
    """Name the library that built an engine."""
    if info.network is not None:
        return f"a network of {info.library_version}"
    parser = ", by its ONNX parser" if info.parser == "onnx" else ""
    return f"{info.builder or 'an unknown builder'} {info.library_version}".rstrip() + parser


def targets_text(info: EngineInfo) -> str:
    """Name the GPUs that an engine runs on."""
    if info.is_reference:
        return "simulated GPUs"
    if info.network is not None:
        return "any; built when it is first loaded"
    targets = ", ".join(info.compute_capabilities) or "the library's default targets"
    return f"{info.gpu_name} ({targets})" if info.gpu_name else targets


def gpu_text(info: EngineInfo) -> str:
    """Name the GPU that an engine was built for, and its targets."""
    device = "no GPU recorded" if info.device_id is None else f"cuda:{info.device_id}"
    facts = [device, info.gpu_name, ", ".join(info.compute_capabilities)]
    return ", ".join(fact for fact in facts if fact)


def binding_sizes(binding: Binding) -> str:
    """Format a binding's sizes, such as ``[1..8, 16]``."""
    if not binding.is_dynamic:
        return str(list(binding.shape))
    ranges = zip(binding.min_shape or (), binding.max_shape or (), strict=False)
    sizes = [str(low) if low == high else f"{low}..{high}" for low, high in ranges]
    return f"[{', '.join(sizes)}]" if sizes else str(list(binding.shape))


def counted(counts: Mapping[str, int]) -> str:
    """Format numbers of calls, such as ``2 x aten::add.out, aten::mul.out``."""
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())
