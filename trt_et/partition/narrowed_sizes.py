"""Warns of dynamic sizes that ExecuTorch is going to narrow.

``to_executorch`` runs a delegate's program on fake tensors. Torch then chooses a kernel for each
convolution by its input's sizes (``_select_conv_backend``). The comparisons that hold for the
example's sizes become bounds of the symbol: memory is planned for 20,480 elements, for example, if
the example has fewer. ExecuTorch's other backends have the same fault (seen with ExecuTorch 1.5.1).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
    StrictMinMaxConstraint,
)
from torch.utils._sympy.value_ranges import ValueRanges

__all__ = ["warn_narrowed_sizes"]

_log = logging.getLogger(__name__)


def warn_narrowed_sizes(nodes: Iterable[Node]) -> None:
    """Warn if ExecuTorch is going to plan memory for less than a dynamic size's maximum.

    Args:
        nodes: Of one partition, in the Edge dialect; not changed.
    """
    warned: set[str] = set()
    for node in nodes:
        if "aten.convolution.default" not in str(node.target):
            continue
        shape = node.args[0].meta["val"].shape  # type: ignore[union-attr]
        for dim, narrowed, maximum in _narrowed(node):
            if str(shape[dim]) not in warned:
                warned.add(str(shape[dim]))
                _log.warning(
                    "%s has an input of %s: ExecuTorch will narrow dimension %d to at most %s, not "
                    "%s, and larger inputs will not run. Export with an example input in which "
                    "this dimension is larger than %s",
                    *(node.name, list(shape), dim, narrowed, maximum, narrowed),
                )


def _narrowed(node: Node) -> list[tuple[int, Any, Any]]:
    """Return dimensions of a convolution's input with the narrowed and the original maximum."""
    arguments: list[Any] = [a.meta["val"] if isinstance(a, Node) else a for a in node.args]
    x, weight, bias, *rest = arguments
    dims = [dim for dim, size in enumerate(x.shape) if isinstance(size, torch.SymInt)]
    if not all(x.shape[dim].node.has_hint() for dim in dims):
        return []
    if any(isinstance(size, torch.SymInt) for size in weight.shape):
        return []
    ranges = {dim: _range(x.shape[dim]) for dim in dims}
    hints = [size.node.hint if dim in ranges else size for dim, size in enumerate(x.shape)]
    context: Any = StatelessSymbolicContext(
        [DimDynamic.DYNAMIC if dim in ranges else DimDynamic.STATIC for dim in range(x.dim())],
        constraint_sizes=[
            StrictMinMaxConstraint(vr=ranges[dim], warn_only=False) if dim in ranges else None
            for dim in range(x.dim())
        ],
    )
    # Symbols of a ShapeEnv that nobody else has: tracing adds guards to it.
    mode = FakeTensorMode(shape_env=ShapeEnv())
    example = torch.empty(hints, dtype=x.dtype)
    fake = mode.from_tensor(example, symbolic_context=context, source=ConstantSource("x"))
    with mode:
        others = [
            torch.empty(value.shape, dtype=value.dtype) if value is not None else None
            for value in (weight, bias)
        ]
        torch.ops.aten.convolution.default(fake, *others, *rest)
    found = [(dim, _range(fake.shape[dim]).upper, ranges[dim].upper) for dim in dims]
    return [(dim, now, before) for dim, now, before in found if now < before]


def _range(size: Any) -> Any:  # noqa: ANN401
    if isinstance(size, int):
        return ValueRanges(size, size)
    return size.node.shape_env.bound_sympy(size.node.expr)
