"""``slice_scatter``, also along dynamic dimensions."""

from __future__ import annotations

import sys
from typing import Any, Final

import torch
from torch import Tensor

from trt_et.conversion.operator import Operator

aten = torch.ops.aten


def slice_scatter(
    x: Tensor,
    src: Tensor,
    dim: int = 0,
    start: Any = None,  # noqa: ANN401
    end: Any = None,  # noqa: ANN401
    step: int = 1,
) -> Any:  # noqa: ANN401
    """Join the rows before the slice, the source, and the rows after.

    Torch-TensorRT 2.13 scatters element by element, along static dimensions only. ``start`` and
    ``end`` may be symbolic. The result is ``NotImplemented`` for gaps along a dynamic dimension.
    """
    size = x.shape[dim]
    start, end = 0 if start is None else start, sys.maxsize if end is None else end
    static = all(isinstance(number, int) for number in (size, start, end))
    if static:
        first, last, _ = slice(start, end).indices(size)
        if last <= first:
            return x.clone()
        start, end = first, last if last < size else sys.maxsize
    if step != 1:
        return _with_gaps(x, src, dim, start, step) if static else NotImplemented
    written: list[Any] = list(x.shape)
    written[dim] = src.shape[dim]
    parts = [src.to(x.dtype).expand(written)]
    if not (isinstance(start, int) and start == 0):
        parts.insert(0, aten.slice.Tensor(x, dim, 0, start))
    if not (isinstance(end, int) and end == sys.maxsize):
        parts.append(aten.slice.Tensor(x, dim, end, sys.maxsize))
    return torch.cat(parts, dim) if len(parts) > 1 else parts[0].clone()


def _with_gaps(x: Tensor, src: Tensor, dim: int, start: int, step: int) -> Tensor:
    indices = torch.arange(x.shape[dim], device=x.device) - start
    count = src.shape[dim]
    written = (indices >= 0) & (indices % step == 0) & (indices < count * step)
    source = src.to(x.dtype).index_select(dim, (indices // step).clamp(0, count - 1))
    shape = [1] * x.dim()
    shape[dim] = -1
    return torch.where(written.reshape(shape), source, x)


SLICE_SCATTER: Final = Operator(
    "slice_scatter", (aten.slice_scatter.default,), decompose=slice_scatter
)
