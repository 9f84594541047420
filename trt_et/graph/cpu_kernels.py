"""Checks which operators ExecuTorch's CPU kernels run.

The reference builder needs this only without Torch-TensorRT: with it, a reference engine has the
operators that a TensorRT engine would have.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import torch
from torch._ops import OpOverload
from torch.fx import Node

_NO_KERNEL: Final = "ExecuTorch has no CPU kernel for it"


def runtime_kernels() -> frozenset[str]:
    """Return the names of the kernels that are registered now: ExecuTorch's, and of plugins."""
    from executorch.runtime import Runtime

    return frozenset(Runtime.get().operator_registry.operator_names)


@cache
def cpu_kernels() -> frozenset[str]:
    """Return the names of the stock ExecuTorch runtime's CPU kernels."""
    return runtime_kernels()


def unsupported_by_cpu_kernels(node: Node) -> str | None:
    """Return why ExecuTorch's CPU kernels do not run a node of plain ATen; None if they do."""
    target = node.target
    if not isinstance(target, OpOverload):
        return None
    if target.namespace != "aten":
        return _NO_KERNEL
    return None if target in _decomposable() or _has_kernel(target) else _NO_KERNEL


@cache
def _decomposable() -> frozenset[OpOverload]:
    from torch._decomp import core_aten_decompositions

    return frozenset(op for op in core_aten_decompositions() if isinstance(op, OpOverload))


def _has_kernel(target: OpOverload) -> bool:
    from executorch.exir.operator.convert import to_out_variant

    for candidate in (target, _copying(target)):
        if candidate is None:
            continue
        if f"{candidate._schema.name}.{candidate._overloadname}_out" in cpu_kernels():
            return True
        try:
            out, _ = to_out_variant(candidate)
        except (AssertionError, KeyError, RuntimeError):
            continue
        name = out._schema.name + (f".{out._overloadname}" if out._overloadname else "")
        if name in cpu_kernels() or f"{out._schema.name}.out" in cpu_kernels():
            return True
    return False


def _copying(target: OpOverload) -> OpOverload | None:
    """Map ``aten.permute.default`` to ``aten.permute_copy.default``, as in the Edge dialect."""
    name = target._schema.name.split("::")[1]
    packet = getattr(torch.ops.aten, f"{'view' if name == 'reshape' else name}_copy", None)
    overload = getattr(packet, target._overloadname, None)
    return overload if isinstance(overload, OpOverload) else None
