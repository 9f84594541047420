"""Operators that ExecuTorch's Edge dialect does not know, in terms of those that it does.

``to_edge_transform_and_lower`` refuses a program with an operator outside of the core ATen set that
no decomposition of its own removes ("is not in Core ATen opset"), whatever the backend could do
with it. What is here is nothing but sums, comparisons and reductions: they go into an engine like
any others, or run on ExecuTorch's CPU kernels.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch._ops import OpOverload
from torch.export import ExportedProgram, default_decompositions
from torch.fx import Node

from trt_et.graph.subgraphs import subgraphs

__all__ = ["decompose_to_core_aten"]

aten = torch.ops.aten


def decompose_to_core_aten(program: ExportedProgram) -> ExportedProgram:
    """The program, with what ExecuTorch does not know taken apart.

    Args:
        program: As ``torch.export`` returns it; not changed.

    Returns:
        Another; the same one where it holds nothing of this file.
    """
    nodes = [node for subgraph in subgraphs(program.graph_module) for node in subgraph.graph.nodes]
    if not any(_is_beyond_core(node) for node in nodes):
        return program
    composite = default_decompositions()
    table: dict[Any, Callable[..., Any]] = {
        **{op: composite[op] for op in _COMPOSITE},
        **get_decompositions(_KNOWN_TO_TORCH),
        **_PARTS,
    }
    if any(_asks_for_indices(node) for node in nodes):
        table = {op: part for op, part in table.items() if op not in _ADAPTIVE_MAXIMA}
    known: ExportedProgram = program.run_decompositions(table)
    return known


def _is_beyond_core(node: Node) -> bool:
    if not isinstance(node.target, OpOverload):
        return False
    if node.target in _NORMS:
        # Those that keep statistics, and write them.
        return bool(node.args[5]) and node.args[3] is not None
    if node.target is aten.diagonal.default:
        # Who writes to it scatters it.
        return any(_writes(user) for user in node.users)
    return _key(node.target) in _KEYS


def _writes(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _key(op: OpOverload) -> tuple[str, str]:
    """Its name; a program has the variants in place, as exported."""
    return op._schema.name.removesuffix("_"), op._overloadname


def _asks_for_indices(node: Node) -> bool:
    return node.target in _ADAPTIVE_MAXIMA and any(
        user.target is operator.getitem and user.args[1] == 1 and user.users for user in node.users
    )


# Reductions.


def _var_mean(
    x: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    dims = dim or list(range(x.dim()))
    mean = aten.mean.dim(x, dims, keepdim)
    return aten.var.correction(x, dims, correction=correction, keepdim=keepdim), mean


def _adaptive_max_pool(x: Tensor, output_size: Sequence[int]) -> Any:  # noqa: ANN401
    """Dimension by dimension, and without the indices."""
    dims = range(x.dim() - len(output_size), x.dim())
    for dim, number in zip(dims, output_size, strict=True):
        length = x.shape[dim]
        if number == 1:
            x = x.amax(dim, keepdim=True)
            continue
        if not isinstance(length, int):
            return NotImplemented
        starts = [i * length // number for i in range(number)]
        ends = [-(-(i + 1) * length // number) for i in range(number)]
        windows = [x.narrow(dim, a, b - a) for a, b in zip(starts, ends, strict=True)]
        x = torch.cat([window.amax(dim, keepdim=True) for window in windows], dim)
    return x, torch.full(x.shape, -1, dtype=torch.int64, device=x.device)


def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:  # noqa: ANN401
    """By doubling: the products of 2 numbers, of 4, of 8."""
    length = x.shape[dim] if x.dim() else 1
    if not isinstance(length, int):
        return NotImplemented
    x = x.to(dtype or (x.dtype if x.dtype.is_floating_point else torch.int64))
    reach = 1
    while reach < length:
        later = x.narrow(dim, reach, length - reach) * x.narrow(dim, 0, length - reach)
        x = torch.cat([x.narrow(dim, 0, reach), later], dim)
        reach *= 2
    return x


def _trilinear(
    first: Tensor,
    second: Tensor,
    third: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Any:  # noqa: ANN401
    """``bilinear``: ``y[b, o] = sum over i, j of x1[b, i] W[o, i, j] x2[b, j]``."""
    if [expand1, expand2, expand3, sumdim] != [[1, 3], [0], [1, 2], [2, 3]]:
        return NotImplemented
    outputs, rows, columns = second.shape
    half = first @ second.permute(1, 0, 2).reshape(rows, outputs * columns)
    return torch.bmm(half.reshape(-1, outputs, columns), third.unsqueeze(-1)).squeeze(-1)


def _sort(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    sorted_and_places: tuple[Tensor, Tensor] = aten.sort.default(x, dim, descending)
    return sorted_and_places


def _bucketize(
    x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """How many boundaries lie below each number; below what is none, all."""
    number = x.unsqueeze(-1)
    above = boundaries > number if right else boundaries >= number
    return above.logical_not().sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


# Element by element.


def _exp2(x: Tensor) -> Tensor:
    power: Tensor = aten.pow.Scalar(2.0, x)
    return power


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    """By the quotient: the squares may be beyond the dtype, where the result is not."""
    x, y = x.abs(), y.abs()
    small, large = torch.minimum(x, y), torch.maximum(x, y)
    # Of two zeros or two infinities there is none.
    quotient = torch.where(small == large, 1.0, small / large)
    return large * torch.sqrt(1 + quotient * quotient)


def _shift_left(x: Tensor, by: Any) -> Tensor:  # noqa: ANN401
    shifted: Tensor = x * _power_of_two(by)
    return shifted


def _shift_right(x: Tensor, by: Any) -> Tensor:  # noqa: ANN401
    return torch.div(x, _power_of_two(by), rounding_mode="floor")


def _power_of_two(by: Any) -> Any:  # noqa: ANN401
    return 2**by if isinstance(by, int) else aten.pow.Scalar(2, by)


# What is written somewhere.


def _diagonal_scatter(
    x: Tensor, diagonal: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    matrices = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = matrices.shape[-2:]
    above = max(-offset, 0)
    around = [above, rows - above - diagonal.shape[-1]]
    by_row = aten.constant_pad_nd.default(diagonal, around).unsqueeze(-1)
    position = torch.arange(rows, device=x.device).unsqueeze(-1) + offset
    hit = position == torch.arange(columns, device=x.device)
    return torch.where(hit, by_row, matrices).movedim((-2, -1), (dim1, dim2))


def _empty_like(x: Tensor, *, dtype: torch.dtype | None = None, **_: object) -> Tensor:
    return torch.full(x.shape, 0, dtype=dtype or x.dtype, device=x.device)


def _empty(size: Sequence[int], *, dtype: torch.dtype | None = None, **_: object) -> Tensor:
    return torch.full(size, 0, dtype=dtype or torch.get_default_dtype())


def _new_empty(
    x: Tensor, size: Sequence[int], *, dtype: torch.dtype | None = None, **_: object
) -> Tensor:
    return torch.full(size, 0, dtype=dtype or x.dtype, device=x.device)


# Random numbers; ExecuTorch has CPU kernels that draw them for a shape.


def _rand_like(x: Tensor, *, dtype: torch.dtype | None = None, **_: object) -> Tensor:
    return torch.rand(x.shape, dtype=dtype or x.dtype, device=x.device)


def _randn_like(x: Tensor, *, dtype: torch.dtype | None = None, **_: object) -> Tensor:
    return torch.randn(x.shape, dtype=dtype or x.dtype, device=x.device)


def _fmax(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x.isnan(), y, torch.where(y.isnan(), x, torch.maximum(x, y)))


def _fmin(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x.isnan(), y, torch.where(y.isnan(), x, torch.minimum(x, y)))


_ADAPTIVE_MAXIMA: Final[tuple[OpOverload, ...]] = (
    aten.adaptive_max_pool1d.default,
    aten.adaptive_max_pool2d.default,
    aten.adaptive_max_pool3d.default,
)
_PARTS: Final[dict[OpOverload, Callable[..., Any]]] = {
    aten.var_mean.correction: _var_mean,
    aten.adaptive_max_pool2d.default: _adaptive_max_pool,
    aten.adaptive_max_pool3d.default: _adaptive_max_pool,
    aten.cumprod.default: _cumprod,
    aten._trilinear.default: _trilinear,
    aten.sort.stable: _sort,
    aten.bucketize.Tensor: _bucketize,
    aten.exp2.default: _exp2,
    aten.hypot.default: _hypot,
    aten.__lshift__.Scalar: _shift_left,
    aten.__lshift__.Tensor: _shift_left,
    aten.__rshift__.Scalar: _shift_right,
    aten.__rshift__.Tensor: _shift_right,
    aten.bitwise_left_shift.Tensor: _shift_left,
    aten.bitwise_left_shift.Tensor_Scalar: _shift_left,
    aten.bitwise_right_shift.Tensor: _shift_right,
    aten.bitwise_right_shift.Tensor_Scalar: _shift_right,
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.empty.memory_format: _empty,
    aten.empty_like.default: _empty_like,
    aten.new_empty.default: _new_empty,
    aten.rand_like.default: _rand_like,
    aten.randn_like.default: _randn_like,
    aten.fmax.default: _fmax,
    aten.fmin.default: _fmin,
}
# What torch itself takes apart into core operators, and those above.
_KNOWN_TO_TORCH: Final[tuple[OpOverload, ...]] = (
    aten._native_batch_norm_legit_functional.default,
    aten.addmv.default,
    aten.dist.default,
    aten.exponential.default,
    aten.tril_indices.default,
    aten.triu_indices.default,
)
# They become the first of those where they train.
_NORMS: Final[tuple[OpOverload, ...]] = (aten.batch_norm.default, aten.instance_norm.default)
# Composite operators that end in one of those.
_COMPOSITE: Final[tuple[OpOverload, ...]] = (
    aten.adaptive_max_pool1d.default,
    aten.argsort.stable,
    aten.bilinear.default,
    aten.std_mean.correction,
    aten.std_mean.default,
    aten.std_mean.dim,
    aten.var_mean.default,
    aten.var_mean.dim,
)
_KEYS: Final = {_key(op) for op in (*_PARTS, *_KNOWN_TO_TORCH, *_COMPOSITE)}
