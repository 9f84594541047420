"""Decomposes operators that ExecuTorch's Edge dialect does not know into core operators.

``to_edge_transform_and_lower`` refuses a program with an operator outside of the core ATen set that
ExecuTorch does not decompose itself ("is not in Core ATen opset"), even if a backend could run it.
These decompositions use only operators that go into an engine like any others, or run on
ExecuTorch's CPU kernels.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, Final

import numpy
import torch
from torch import Tensor
from torch._decomp import get_decompositions, global_decomposition_table
from torch._ops import OpOverload
from torch.export import ExportedProgram, default_decompositions
from torch.fx import Node
from torch.nn import functional as F

from trt_et.graph.adaptive_windows import regular_windows
from trt_et.graph.arguments import writes_in_place
from trt_et.graph.subgraphs import nodes_of
from trt_et.graph.symbolic_shapes import (
    UnboundedDimension,
    of_example,
    same_sizes,
    shape_range,
)
from trt_et.mends.masked_writes import writes_by_mask

aten = torch.ops.aten


def decompose_to_core_aten(program: ExportedProgram) -> ExportedProgram:
    """Decompose a program's operators that ExecuTorch does not know."""
    nodes = nodes_of(program)
    if not any(map(_is_beyond_core, nodes)):
        return program
    composite = default_decompositions()
    table: dict[Any, Callable[..., Any]] = {
        **{op: composite[op] for op in _COMPOSITE},
        **get_decompositions(_known_to_torch()),
        **_PARTS,
    }
    if any(map(_asks_for_indices, nodes)):
        table = {op: part for op, part in table.items() if op not in _ADAPTIVE_MAXIMA}
    known: ExportedProgram = program.run_decompositions(table)
    # ExecuTorch names the operator that it does not know, but no primitive of torch's.
    return program if any(map(_is_primitive, nodes_of(known))) else known


def _is_primitive(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target.namespace == "prims"


def _is_beyond_core(node: Node) -> bool:
    if not isinstance(node.target, OpOverload):
        return False
    if node.target in _NORMS:
        # Norms that update their running statistics.
        return bool(node.args[5]) and node.args[3] is not None
    if node.target is aten.diagonal.default:
        # A write to a diagonal becomes a scatter.
        return any(writes_in_place(user) for user in node.users)
    if node.target is aten.pad.default:
        return node.args[2:3] == ("circular",)
    if node.target in _ADAPTIVE_MEANS:
        source: Any = node.args[0]
        sizes = source.meta["val"].shape[-len(node.args[1]) :]  # type: ignore[arg-type]
        return not all(isinstance(size, int) for size in sizes)
    if node.target is aten.copy_.default:
        return False  # ExecuTorch knows the operator that it becomes.
    if node.target in (aten.index_put.default, aten.index_put_.default):
        return writes_by_mask(node)  # ``select_by_mask`` takes functional programs.
    return _key(node.target) in _keys()


def _key(op: OpOverload) -> tuple[str, str]:
    """Return an operator's name, without the mark of a variant that works in place."""
    name = op._schema.name
    name = name.replace("::__i", "::__") if name.endswith("__") else name.removesuffix("_")
    return name, op._overloadname


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


def _adaptive_max_pool(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Compute the maxima without the indices."""
    lengths = x.shape[-len(output_size) :]
    windows = [*filter(None, map(regular_windows, lengths, output_size))]
    # TensorRT pools a fixed number of channels only.
    are_poolable = len(windows) == len(lengths) and isinstance(x.shape[-len(windows) - 1], int)
    if set(output_size) == {1}:
        for dim in range(-len(output_size), 0):
            x = x.amax(dim, keepdim=True)
    elif are_poolable:
        pool = F.max_pool2d if len(windows) == 2 else F.max_pool3d
        kernel, step = zip(*windows, strict=True)
        x = pool(x, kernel, step)
    else:
        x = _pool_adaptively(x, output_size, _largest)
    return x, torch.full(x.shape, -1, dtype=torch.int64, device=x.device)


def _adaptive_avg_pool(x: Tensor, output_size: Sequence[int]) -> Any:  # noqa: ANN401
    if all(isinstance(size, int) for size in x.shape[-len(output_size) :]):
        return NotImplemented
    return _pool_adaptively(x, output_size, _mean)


def _pool_adaptively(
    x: Tensor, output_size: Sequence[int], reduce: Callable[[Tensor, int, Any], Tensor]
) -> Tensor:
    """Pool dimension by dimension: window i reaches from floor(i * in / out) to ceil of the next.

    ``reduce`` takes windows, their dimension, and which of their elements count (None: all).
    """
    for dim, number in zip(range(x.dim() - len(output_size), x.dim()), output_size, strict=True):
        length = x.shape[dim]
        if same_sizes([length], [number]):
            continue
        if same_sizes([length % number], [0]):
            x = reduce(torch.unflatten(x, dim, (number, length // number)), dim + 1, None)
        elif isinstance(length, int):
            starts = [i * length // number for i in range(number)]
            sizes = [-(-(i + 1) * length // number) - start for i, start in enumerate(starts)]
            windows = [x.narrow(dim, *each) for each in zip(starts, sizes, strict=True)]
            x = torch.stack([reduce(window, dim, None) for window in windows], dim)
        else:
            order = torch.arange(number, device=x.device).unsqueeze(-1)
            places = torch.arange((length + number - 1) // number + 1, device=x.device)
            places = order * length // number + places
            last = (order * length + length - 1) // number
            windows = aten.index.Tensor(x, [*[None] * dim, torch.minimum(places, last)])
            is_inside = (places <= last).reshape(*places.shape, *[1] * (x.dim() - 1 - dim))
            x = reduce(windows, dim + 1, is_inside)
    return x


def _largest(windows: Tensor, dim: int, is_inside: Tensor | None) -> Tensor:
    return windows.amax(dim)  # The other elements repeat the last one.


def _mean(windows: Tensor, dim: int, is_inside: Tensor | None) -> Tensor:
    if is_inside is None:
        return windows.mean(dim)
    total = torch.where(is_inside, windows, 0).sum(dim, dtype=torch.float32)
    return (total / is_inside.sum(1)).to(windows.dtype)


def _as_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:  # noqa: ANN401
    """Gather the elements by their places in memory, which an engine does not keep."""
    steps = [of_example(step) or 0 for step in x.stride()]
    order = sorted(range(x.dim()), key=steps.__getitem__, reverse=True)
    dense = x.permute(order)
    if not same_sizes(dense.stride(), dense.contiguous().stride()):
        return NotImplemented
    places = torch.full((), storage_offset or 0, device=x.device)
    for number, step in zip(size, stride, strict=True):
        places = places.unsqueeze(-1) + torch.arange(number, device=x.device) * step
    return dense.reshape(-1)[places - x.storage_offset()]


def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:  # noqa: ANN401
    """Multiply by doubling: the products of 2 numbers, of 4, of 8.

    torch accumulates floats in double precision on a CPU, which TensorRT does not have, and in
    float32 on a GPU. Each product here is rounded once for each doubling, and those beyond float32
    become infinite or 0, or NaN if they meet.
    """
    length = x.shape[dim] if x.dim() else 1
    try:
        _, _, longest = shape_range(length)
    except UnboundedDimension:
        return NotImplemented
    dtype = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    wide = torch.promote_types(dtype, torch.float32) if dtype.is_floating_point else dtype
    products = x.to(dtype).to(wide)
    reach = 1
    while reach < longest:
        sizes = [reach if d == dim % x.dim() else size for d, size in enumerate(x.shape)]
        before = torch.ones(sizes, dtype=products.dtype, device=x.device)
        products = products * torch.cat([before, products], dim).narrow(dim, 0, length)
        reach *= 2
    return products.to(dtype)


def _trilinear(first: Tensor, second: Tensor, third: Tensor, *dims: Any) -> Any:  # noqa: ANN401
    """Compute ``bilinear``: ``y[b, o] = sum over i, j of x1[b, i] W[o, i, j] x2[b, j]``."""
    if dims[:4] != ([1, 3], [0], [1, 2], [2, 3]):
        return NotImplemented
    outputs, rows, columns = second.shape
    half = first @ second.permute(1, 0, 2).reshape(rows, outputs * columns)
    return torch.bmm(half.reshape(-1, outputs, columns), third.unsqueeze(-1)).squeeze(-1)


def _sort(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """Sort, then sort the positions of equal elements.

    Neither TensorRT nor ExecuTorch's kernel keeps equal elements in order.
    """
    values, places = aten.sort.default(x, dim, descending)
    if not stable or x.dim() == 0:
        return values, places
    length = x.shape[dim]
    before, after = values.narrow(dim, 0, length - 1), values.narrow(dim, 1, length - 1)
    differs = after != before
    if x.dtype.is_floating_point:
        differs = differs & ~(after.isnan() & before.isnan())
    first = torch.zeros_like(places.narrow(dim, 0, 1))
    group = torch.cat([first, differs.to(torch.int64).cumsum(dim)], dim) * length
    # No two keys are equal.
    keys, _ = aten.sort.default(group + places, dim, False)
    return values, keys - group


def _sort_by_topk(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Return all elements as the largest or smallest: ExecuTorch has no kernel that sorts."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    if x.dtype is torch.bool:
        values, places = _sort_by_topk(x.to(torch.int32), dim, descending)
        return values.to(torch.bool), places
    values, places = aten.topk.default(x, x.shape[dim], dim, descending)
    return values, places


def _quantile(
    x: Tensor,
    q: Any,  # noqa: ANN401
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Any:  # noqa: ANN401
    """Interpolate between two ranks, which torch computes in double precision.

    They are as exact for a number of a static size; others are float32, good enough for
    ``linear`` alone.
    """
    along = x.reshape(-1) if dim is None else x.movedim(dim, 0)
    last = along.shape[0] - 1
    is_exact = isinstance(q, float) and isinstance(last, int)
    if x.dtype is not torch.float32 or not x.dim() or not (is_exact or interpolation == "linear"):
        return NotImplemented
    at: Any = float(numpy.float32(q)) * last if is_exact else 0.0
    ranks = torch.full((1,), at)
    if not is_exact:
        q = torch.full((), q) if isinstance(q, float) else q
        ranks = q.reshape(-1) * torch.full((), last, dtype=torch.float32)
    rounding: Any = {"higher": math.ceil, "nearest": round}.get(interpolation, math.floor)
    below = torch.full((1,), float(rounding(at))) if is_exact else ranks.floor()
    above = torch.full((1,), float(math.ceil(at))) if is_exact else ranks.ceil()
    values, _ = aten.sort.default(along, 0)
    result = values.index_select(0, below.to(torch.int64))
    if interpolation in ("linear", "midpoint"):
        weights = ranks - below if interpolation == "linear" else torch.full((1,), 0.5)
        step = values.index_select(0, above.to(torch.int64)) - result
        result = result + step * weights.reshape(-1, *[1] * (along.dim() - 1))
    result = torch.where(along.isnan().any(0), math.nan, result)
    if keepdim:
        result = (
            result.unsqueeze(1 + dim % x.dim())
            if dim is not None
            else result.reshape(-1, *[1] * x.dim())
        )
    return result if isinstance(q, Tensor) and q.dim() else result.squeeze(0)


def _bucketize(
    x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Count the boundaries below each number; all are below NaN."""
    number = x.unsqueeze(-1)
    above = boundaries > number if right else boundaries >= number
    return above.logical_not().sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def _antialiased(
    x: Tensor,
    output_size: Sequence[int],
    align_corners: bool,
    *factors: float | None,
    reach: int,
) -> Any:  # noqa: ANN401
    """Multiply by a matrix for each dimension: torch's antialiased resize is separable."""
    is_static = all(isinstance(size, int) for size in (*x.shape[2:], *output_size))
    if not x.dtype.is_floating_point or (align_corners and not is_static):
        return NotImplemented
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    rows, columns = (
        _resize_weights(wide, dim, size, factor, reach, align_corners=align_corners)
        for dim, size, factor in zip((2, 3), output_size, factors or (None, None), strict=True)
    )
    return (rows @ (wide @ columns.t())).to(x.dtype)


def _antialiased_vec(
    x: Tensor,
    output_size: Sequence[int] | None,
    align_corners: bool,
    factors: Sequence[float] | None,
    *,
    reach: int,
) -> Any:  # noqa: ANN401
    if output_size is None:
        if factors is None or not all(isinstance(size, int) for size in x.shape[2:]):
            return NotImplemented
        output_size = [int(n * by) for n, by in zip(x.shape[2:], factors, strict=True)]
    return _antialiased(x, output_size, align_corners, *(factors or ()), reach=reach)


def _resize_weights(
    x: Tensor, dim: int, wanted: int, factor: float | None, reach: int, *, align_corners: bool
) -> Tensor:
    """Return a matrix [wanted, size] as ``aten/src/ATen/native/UpSample.h`` of torch describes it.

    ``reach`` is the width of the filter on each side: 1 is a triangle, 2 a cubic spline.
    """
    size = x.shape[dim]
    if align_corners:
        step = x.new_full((), (size - 1) / (wanted - 1) if wanted > 1 else 0)
    elif factor:
        step = x.new_full((), 1 / factor)
    else:
        step = x.new_full((), size) / x.new_full((), wanted)
    centers = (torch.arange(wanted, dtype=x.dtype, device=x.device) + 0.5) * step
    places = torch.arange(size, dtype=x.dtype, device=x.device) + 0.5
    distance = ((places - centers.unsqueeze(1)) / step.clamp(min=1)).abs()
    weights = (1 - distance).clamp(min=0)
    if reach == 2:
        near = (1.5 * distance - 2.5) * distance * distance + 1
        far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
        weights = torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
    return weights / weights.sum(1, keepdim=True)


# Element by element.


def _prims_div(x: Tensor, y: Tensor) -> Tensor:
    return torch.div(x, y, rounding_mode=None if x.dtype.is_floating_point else "trunc")


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    """Compute it from the quotient: the squares may be beyond the dtype when the result is not."""
    dtype = torch.result_type(x, y)
    wide = torch.promote_types(dtype, torch.float32)  # Torch computes half precision in float32.
    x, y = x.to(wide).abs(), y.to(wide).abs()
    small, large = torch.minimum(x, y), torch.maximum(x, y)
    # Two zeros have no quotient.
    quotient = torch.where(small == large, 1.0, small / large)
    length = large * torch.sqrt(1 + quotient * quotient)
    # An infinity counts, even if the other is NaN.
    is_infinite = (x == math.inf) | (y == math.inf)
    return torch.where(is_infinite, math.inf, length).to(dtype)


def _one_hot(x: Tensor, num_classes: int = -1) -> Any:  # noqa: ANN401
    """Compare, without torch's check of the numbers, which ExecuTorch drops."""
    if num_classes < 1:
        return NotImplemented
    return (x.unsqueeze(-1) == torch.arange(num_classes, device=x.device)).to(torch.int64)


def _signbit(x: Tensor) -> Tensor:
    # The sign of a zero is that of its reciprocal.
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.dtype.is_floating_point else x < 0


def _copysign(x: Tensor, y: Any) -> Tensor:  # noqa: ANN401
    dtype = torch.result_type(x, y)
    size = x.abs().to(dtype if dtype.is_floating_point else torch.get_default_dtype())
    if isinstance(y, Tensor):
        return torch.where(_signbit(y), -size, size)
    return -size if math.copysign(1, y) < 0 else size


def _round(x: Tensor, *, decimals: int = 0) -> Any:  # noqa: ANN401
    if not x.dtype.is_floating_point:
        return NotImplemented
    scale = 10.0 ** abs(decimals)
    return (x * scale).round() / scale if decimals > 0 else (x / scale).round() * scale


def _shift_left(x: Tensor, by: Any) -> Any:  # noqa: ANN401
    """Multiply by powers of two that the dtype holds; drop the bits that are shifted out."""
    if not _is_integral(torch.result_type(x, by)):
        return NotImplemented  # torch refuses it as well, if not at the export.
    x, by, bits = _shift_operands(x, by)
    if isinstance(by, int):
        return x * 0 if not 0 <= by < bits else _doubled(x, by, bits)
    shifted, beyond = x, (by < 0) | (by >= bits)
    by = torch.where(beyond, 0, by)
    for step, is_taken in _steps(by, bits):
        shifted = torch.where(is_taken, _doubled(shifted, step, bits), shifted)
    return torch.where(beyond, 0, shifted)


def _doubled(x: Tensor, times: int, bits: int) -> Tensor:
    # 2 ** (bits - 1) is beyond a signed dtype.
    return x * (1 << times) if times < bits - 1 else x * (1 << (bits - 2)) * 2


def _remainder_of_number(x: float, y: Tensor) -> Tensor:
    dtype = torch.result_type(x, y)
    rest: Tensor = aten.remainder.Tensor(torch.full((), x, dtype=dtype, device=y.device), y)
    return rest


def _shift_right(x: Tensor, by: Any) -> Any:  # noqa: ANN401
    """Divide by powers of two, and round down; beyond the dtype's bits only the sign remains."""
    if not _is_integral(torch.result_type(x, by)):
        return NotImplemented  # torch refuses it as well, if not at the export.
    x, by, bits = _shift_operands(x, by)
    if isinstance(by, int):
        by = by if 0 <= by < bits else bits
        # 2 ** (bits - 1) is beyond a signed dtype.
        first = min(by, bits - 2)
        return _halved(_halved(x, first), by - first)
    beyond = (by < 0) | (by >= bits)
    by = torch.where(beyond, bits - 1, by)
    for step, is_taken in _steps(by, bits):
        x = torch.where(is_taken, _halved(x, step), x)
    return torch.where(beyond, _halved(x, 1), x)


def _halved(x: Tensor, times: int) -> Tensor:
    return torch.div(x, 2**times, rounding_mode="floor") if times else x


def _is_integral(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _shift_operands(x: Tensor, by: Any) -> tuple[Tensor, Any, int]:  # noqa: ANN401
    """Return both in the dtype of the result, as torch converts them, and its number of bits."""
    dtype = torch.result_type(x, by)
    bits = torch.iinfo(dtype).bits
    if isinstance(by, Tensor):
        return x.to(dtype), by.to(dtype), bits
    if not isinstance(by, int):
        return x.to(dtype), torch.full((), by, dtype=dtype, device=x.device), bits
    by %= 2**bits
    return x.to(dtype), by - 2**bits if dtype.is_signed and by >= 2 ** (bits - 1) else by, bits


def _steps(by: Tensor, bits: int) -> Iterator[tuple[int, Tensor]]:
    """Yield the powers of two below the bits, the largest first, and which numbers have each."""
    step = bits // 2
    while step:
        is_taken = by >= step
        yield step, is_taken
        by = torch.where(is_taken, by - step, by)
        step //= 2


# Writes into tensors.


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


def _scatter_and_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor | float, *, reduce: str
) -> Tensor:
    names = {"add": "sum", "multiply": "prod"}
    if not isinstance(source, Tensor):
        source = torch.full(index.shape, source, dtype=x.dtype, device=x.device)
    return x.scatter_reduce(dim, index, source, names[reduce])


def _copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    if x.dtype == source.dtype and same_sizes(x.shape, source.shape):
        return source  # A copy would hide an update of a cache from the engine.
    return source.to(x.dtype).expand(x.shape).clone()


def _fill(x: Tensor, value: Tensor) -> Tensor:
    return value.to(x.dtype).expand(x.shape).clone()  # TensorRT takes no source to broadcast.


def _least(size: int | torch.SymInt) -> int:
    try:
        return shape_range(size)[0]
    except UnboundedDimension:
        return 0


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:  # noqa: ANN401
    """Join both parts; torch gathers by indices."""
    if not dims:
        return NotImplemented
    is_dynamic = any(isinstance(size, torch.SymInt) for size in x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size, others = x.shape[dim], [*x.shape]
        del others[dim]
        if not isinstance(shift, int) or abs(shift) > _least(size):
            return NotImplemented
        row = math.prod(max(_least(other), 1) for other in others)
        if is_dynamic and min(abs(shift), _least(size) - abs(shift)) * row < 2:
            return NotImplemented  # torch bars the size at which a part has one element.
        begin = -shift if shift < 0 else size - shift
        x = torch.cat([aten.slice.Tensor(x, dim, begin), aten.slice.Tensor(x, dim, 0, begin)], dim)
    return x


def _empty(size: Sequence[int], *, dtype: torch.dtype | None = None, **_: object) -> Tensor:
    return torch.full(size, 0, dtype=dtype or torch.get_default_dtype())


def _new_empty(
    x: Tensor, size: Sequence[int], *, dtype: torch.dtype | None = None, **_: object
) -> Tensor:
    return torch.full(size, 0, dtype=dtype or x.dtype, device=x.device)


def _pad(x: Tensor, pad: Sequence[int], mode: str = "constant", *_: object) -> Any:  # noqa: ANN401
    """Concatenate: torch writes into an empty tensor, which ExecuTorch gives a fixed size."""
    if mode != "circular" or not all(isinstance(width, int) and width >= 0 for width in pad):
        return NotImplemented
    for index in range(0, len(pad), 2):
        dim = x.dim() - 1 - index // 2
        before = x.narrow(dim, x.shape[dim] - pad[index], pad[index])
        x = torch.cat([before, x, x.narrow(dim, 0, pad[index + 1])], dim)
    return x


def _by_shape(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make a tensor like another one by its shape."""

    def like(x: Tensor, *, dtype: torch.dtype | None = None, **_: object) -> Tensor:
        return make(x.shape, dtype=dtype or x.dtype, device=x.device)

    return like


def _without_nan(extreme: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, y: torch.where(x.isnan(), y, torch.where(y.isnan(), x, extreme(x, y)))


# ExecuTorch knows core operators and copies of views, and has kernels for random numbers.
_UNDECOMPOSED: Final = {torch.Tag.core, torch.Tag.view_copy, torch.Tag.nondeterministic_seeded}
# An engine resizes in one layer; torch writes into complex tensors.
_KEPT: Final[tuple[OpOverload, ...]] = (
    aten.upsample_bilinear2d.default,
    aten.upsample_bicubic2d.default,
    aten.upsample_trilinear3d.default,
    aten.complex.default,
    aten.polar.default,
)
_ADAPTIVE_MAXIMA: Final[tuple[OpOverload, ...]] = (
    aten.adaptive_max_pool1d.default,
    aten.adaptive_max_pool2d.default,
    aten.adaptive_max_pool3d.default,
)
_ADAPTIVE_MEANS: Final[tuple[OpOverload, ...]] = (
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
)
_PARTS: Final[dict[OpOverload, Callable[..., Any]]] = {
    aten.var_mean.correction: _var_mean,
    aten.adaptive_max_pool2d.default: _adaptive_max_pool,
    aten.adaptive_max_pool3d.default: _adaptive_max_pool,
    **dict.fromkeys(_ADAPTIVE_MEANS, _adaptive_avg_pool),
    aten.as_strided.default: _as_strided,
    aten.cumprod.default: _cumprod,
    aten._trilinear.default: _trilinear,
    aten.quantile.default: _quantile,
    aten.quantile.scalar: _quantile,
    aten.sort.default: _sort_by_topk,
    aten.sort.stable: _sort,
    aten.bucketize.Tensor: _bucketize,
    aten.exp2.default: lambda x: aten.pow.Scalar(2.0, x),
    aten.hypot.default: _hypot,
    aten.__lshift__.Scalar: _shift_left,
    aten.__lshift__.Tensor: _shift_left,
    aten.__rshift__.Scalar: _shift_right,
    aten.__rshift__.Tensor: _shift_right,
    aten.bitwise_left_shift.Tensor: _shift_left,
    aten.bitwise_left_shift.Tensor_Scalar: _shift_left,
    aten.bitwise_right_shift.Tensor: _shift_right,
    aten.bitwise_right_shift.Tensor_Scalar: _shift_right,
    aten.bitwise_left_shift.Scalar_Tensor: lambda x, by: _shift_left(by * 0 + x, by),
    aten.bitwise_right_shift.Scalar_Tensor: lambda x, by: _shift_right(by * 0 + x, by),
    aten.remainder.Scalar_Tensor: _remainder_of_number,
    aten.scatter.reduce: _scatter_and_reduce,
    aten.scatter.value_reduce: _scatter_and_reduce,
    aten.copy.default: _copy,
    aten.fill.Tensor: _fill,
    aten.roll.default: _roll,
    aten.pad.default: _pad,
    torch.ops.prims.div.default: _prims_div,
    torch.ops.prims.convert_element_type.default: lambda x, dtype: x.to(dtype),
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.empty.memory_format: _empty,
    aten.empty_like.default: _by_shape(partial(torch.full, fill_value=0)),
    aten.new_empty.default: _new_empty,
    # ExecuTorch has CPU kernels that draw random numbers for a shape.
    aten.rand_like.default: _by_shape(torch.rand),
    aten.randn_like.default: _by_shape(torch.randn),
    aten._is_all_true.default: lambda x: x.all(),
    aten._is_any_true.default: lambda x: x.any(),
    aten.one_hot.default: _one_hot,
    aten.signbit.default: _signbit,
    aten.copysign.Tensor: _copysign,
    aten.copysign.Scalar: _copysign,
    aten.round.decimals: _round,
    aten.bitwise_and.Scalar_Tensor: lambda x, y: aten.bitwise_and.Scalar(y, x),
    aten.bitwise_or.Scalar_Tensor: lambda x, y: aten.bitwise_or.Scalar(y, x),
    aten.bitwise_xor.Scalar_Tensor: lambda x, y: aten.bitwise_xor.Scalar(y, x),
    aten._upsample_bilinear2d_aa.default: partial(_antialiased, reach=1),
    aten._upsample_bilinear2d_aa.vec: partial(_antialiased_vec, reach=1),
    aten._upsample_bicubic2d_aa.default: partial(_antialiased, reach=2),
    aten._upsample_bicubic2d_aa.vec: partial(_antialiased_vec, reach=2),
    aten.fmax.default: _without_nan(torch.maximum),
    aten.fmin.default: _without_nan(torch.minimum),
}
# In training they become the first operator of that list.
_NORMS: Final[tuple[OpOverload, ...]] = (aten.batch_norm.default, aten.instance_norm.default)
# Composite operators that decompose into one of the operators above.
_COMPOSITE: Final[tuple[OpOverload, ...]] = (
    aten.adaptive_max_pool1d.default,
    aten.argsort.default,
    aten.argsort.stable,
    aten.bilinear.default,
    aten.logaddexp2.default,
    aten.msort.default,
    aten.std_mean.correction,
    aten.std_mean.default,
    aten.std_mean.dim,
    aten.var_mean.default,
    aten.var_mean.dim,
)


@cache
def _known_to_torch() -> tuple[OpOverload, ...]:
    """Return the operators that torch decomposes, and neither ExecuTorch nor this file does."""
    from executorch.exir.tracer import _default_decomposition_table

    theirs = _default_decomposition_table()
    return tuple(
        op
        for op in global_decomposition_table["post_autograd"]
        if isinstance(op, OpOverload)
        and op.namespace == "aten"
        and op not in theirs
        and op not in (*_PARTS, *_KEPT)
        and not op.is_view
        and not op._schema.is_mutable
        and (_UNDECOMPOSED.isdisjoint(op.tags) or op is aten.exponential.default)
    )


@cache
def _keys() -> set[tuple[str, str]]:
    return {_key(op) for op in (*_PARTS, *_known_to_torch(), *_COMPOSITE)}
