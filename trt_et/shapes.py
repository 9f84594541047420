"""Sizes that may be symbolic, and the ranges that export recorded for them."""

from __future__ import annotations

import torch

__all__ = ["UnboundedDimension", "is_static", "shape_range"]

_UNBOUNDED = 2**31 - 1


class UnboundedDimension(ValueError):
    """A dimension has no upper bound that an engine or a memory plan could use."""


def is_static(value: object) -> bool:
    """Whether a node's ``meta["val"]`` holds no symbolic size or number."""
    if isinstance(value, torch.Tensor):
        return all(isinstance(size, int) for size in value.shape)
    if isinstance(value, tuple | list):
        return all(is_static(item) for item in value)
    return not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def shape_range(size: int | torch.SymInt) -> tuple[int, int, int]:
    """Smallest, exported (hinted) and largest value of one dimension.

    Raises:
        UnboundedDimension: It has no usable upper bound, or depends on data.
    """
    if isinstance(size, int):
        return size, size, size
    from torch.utils._sympy.value_ranges import bound_sympy

    expression = size.node.expr
    environment = size.node.shape_env
    bounds = bound_sympy(expression, environment.var_to_range)
    if not bounds.upper.is_Integer or int(bounds.upper) >= _UNBOUNDED:
        raise UnboundedDimension(f"dimension {expression} has no upper bound; give Dim(..., max=N)")
    if not size.node.has_hint():
        raise UnboundedDimension(f"dimension {expression} depends on data")
    low, high = int(bounds.lower), int(bounds.upper)
    return low, min(max(int(size.node.hint), low), high), high
