"""Decomposes operators that TensorRT runs and ExecuTorch's CPU kernels do not.

Three-dimensional pooling and convolution, slice by slice; sorting by ``topk``; embedding bags and
scatters that reduce, by a matrix; negative padding; cumulative sums of a single number;
remainders of negative integers; bicubic resizing of a permuted tensor; sums in half precision, of
products, windows and normalizations; products of pairs of dynamic sizes; quantize operators, by
torch's own functions. Only the reference builder needs this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.ao.quantization.fx import _decomposed as pt2e
from torch.export import ExportedProgram
from torch.nn import functional
from torch.utils._pytree import tree_map_only

from trt_et.conversion.operators.member_sums import EMBEDDING_BAG, embedding_bag, scatter_reduce
from trt_et.ops.fake_quantize import FAKE_QUANTIZE, fake_quantize

aten = torch.ops.aten
_pt2e = torch.ops.quantized_decomposed

# ``pad`` takes the last dimension first; these leave the last three of five dimensions as they are.
_REST: Final = (0, 0, 0, 0, 0, 0)
_Sizes = int | Sequence[int]
_HALF: Final = (torch.float16, torch.bfloat16)


def decompose_for_cpu_kernels(program: ExportedProgram) -> ExportedProgram:
    """Decompose the operators of this file; return the same program if it has none of them.

    Args:
        program: Plain ATen; not changed.
    """
    used = {node.target for node in program.graph.nodes if _lacks_kernel(node)}
    return program.run_decompositions({op: _part(op) for op in used}) if used else program


def _lacks_kernel(node: torch.fx.Node) -> bool:
    if node.target not in _PARTS:
        return False
    x: Any = node.args[0]
    applies = _ONLY_IF.get(node.target)
    return applies is None or applies(x.meta["val"], *node.args[1:])


def _part(op: OpOverload) -> Callable[..., Any]:
    part, applies = _PARTS[op], _ONLY_IF.get(op)
    if applies is None:
        return part
    return lambda *args, **more: part(*args, **more) if applies(*args, **more) else NotImplemented


def _is_volume(x: Tensor, *_: object) -> bool:
    return x.dim() == 5


def _triple(value: _Sizes) -> tuple[int, ...]:
    numbers = (value,) if isinstance(value, int) else tuple(value)
    return numbers * 3 if len(numbers) == 1 else numbers


def _planes_then_depth(
    x: Tensor, pool: Callable[[Tensor, Callable[[Sequence[int]], list[int]]], Tensor]
) -> Tensor:
    """Pool height and width, then depth: a window's maximum and its mean are both separable."""
    batched = x if x.dim() == 5 else x.unsqueeze(0)
    n, c, d, h, w = batched.shape
    y = pool(batched.reshape(n, c * d, h, w), lambda sizes: list(sizes[1:3]))
    h, w = y.shape[-2:]
    y = pool(y.reshape(n, c, d, h * w), lambda sizes: [sizes[0], sizes[3]])
    y = y.reshape(n, c, -1, h, w)
    return y if x.dim() == 5 else y.squeeze(0)


def _max_pool3d(
    x: Tensor,
    kernel_size: _Sizes,
    stride: _Sizes = (),
    padding: _Sizes = 0,
    dilation: _Sizes = 1,
    ceil_mode: bool = False,
) -> Tensor:
    kernel, step = _triple(kernel_size), _triple(stride or kernel_size)
    pad, spread = _triple(padding), _triple(dilation)
    return _planes_then_depth(
        x,
        lambda y, of: functional.max_pool2d(
            y, of((*kernel, 1)), of((*step, 1)), of((*pad, 0)), of((*spread, 1)), ceil_mode
        ),
    )


def _avg_pool3d(
    x: Tensor,
    kernel_size: _Sizes,
    stride: _Sizes = (),
    padding: _Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    kernel, pad = _triple(kernel_size), _triple(padding)
    step = _triple(stride or kernel_size)
    # With divisor_override, both steps are sums.
    divisor = None if divisor_override is None else 1
    y = _planes_then_depth(
        x,
        lambda y, of: functional.avg_pool2d(
            y,
            of((*kernel, 1)),
            of((*step, 1)),
            of((*pad, 0)),
            ceil_mode,
            count_include_pad,
            divisor,
        ),
    )
    return y if divisor_override is None else y / divisor_override


def _adaptive_avg_pool3d(x: Tensor, output_size: _Sizes) -> Tensor:
    depth, *planes = _triple(output_size)
    return _planes_then_depth(
        x, lambda y, of: aten.adaptive_avg_pool2d.default(y, of((depth, *planes, y.shape[-1])))
    )


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    step, pad, spread = _triple(stride), _triple(padding), _triple(dilation)
    count, depth, taps = x.shape[0], x.shape[2], weight.shape[2]
    parts = []
    if transposed:
        extra = _triple(output_padding)
        how = (step[1:], pad[1:], extra[1:], groups, spread[1:])
        planes = x.transpose(1, 2).flatten(0, 1)
        for tap in range(taps):
            y = functional.conv_transpose2d(planes, weight[:, :, tap], None, *how)
            # Zeros after each slice, then zeros for the other taps around them.
            y = functional.pad(y.reshape(count, depth, 1, *y.shape[1:]), [*_REST, 0, step[0] - 1])
            y = y.flatten(1, 2)[:, : (depth - 1) * step[0] + 1]
            parts.append(functional.pad(y, [*_REST, tap * spread[0], (taps - 1 - tap) * spread[0]]))
        y = functional.pad(reduce(torch.add, parts), [*_REST, 0, extra[0]])
        y = y[:, pad[0] : y.shape[1] - pad[0]]
    else:
        deep = functional.pad(x, [0, 0, 0, 0, pad[0], pad[0]]).transpose(1, 2)
        depth = (deep.shape[1] - spread[0] * (taps - 1) - 1) // step[0] + 1
        for tap in range(taps):
            start = tap * spread[0]
            planes = deep[:, start : start + (depth - 1) * step[0] + 1 : step[0]].flatten(0, 1)
            y = functional.conv2d(
                planes, weight[:, :, tap], None, step[1:], pad[1:], spread[1:], groups
            )
            parts.append(y)
        y = reduce(torch.add, parts)
        y = y.reshape(count, depth, *y.shape[1:])
    y = y.transpose(1, 2)
    return y if bias is None else y + bias.reshape(1, -1, 1, 1, 1)


def _crops(_: Tensor, pad: Sequence[int], *__: object) -> bool:
    return any(isinstance(size, int) and size < 0 for size in pad)


def _pad(x: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """Pad also with negative sizes, which crop; the kernel takes only positive sizes."""
    for index in range(len(pad) // 2):
        low, high = (max(-size, 0) for size in pad[2 * index : 2 * index + 2])
        dim = x.dim() - 1 - index
        x = x.narrow(dim, low, x.shape[dim] - low - high)
    return functional.pad(x, [max(size, 0) for size in pad], value=value)


def _crops_plainly(x: Tensor, pad: Sequence[int], mode: str = "constant", *__: object) -> bool:
    return mode == "constant" and _crops(x, pad)


def _pad_plainly(x: Tensor, pad: Sequence[int], _: str = "", value: float | None = None) -> Tensor:
    return _pad(x, pad, value or 0)


def _is_number(x: Tensor, *_: object, **__: object) -> bool:
    return x.dim() == 0


def _is_number_or_half(x: Tensor, *_: object, **__: object) -> bool:
    return _is_number(x) or _is_half(x)


def _cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    if not _is_number(x):
        result = dtype or x.dtype
        wide = torch.float32 if result in _HALF else result
        return torch.cumsum(x.to(wide), dim).to(result)
    summed = x.dtype if x.dtype.is_floating_point else torch.int64
    return x.to(dtype or summed) + 0


def _sort(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    if _is_number(x):
        return x + 0, torch.zeros_like(x, dtype=torch.int64)
    return torch.topk(x, x.shape[dim], dim, descending, True)


def _is_of_integers(x: Tensor, y: object) -> bool:
    other = y.meta["val"] if isinstance(y, torch.fx.Node) else y
    if isinstance(other, Tensor):
        return not x.dtype.is_floating_point and not other.dtype.is_floating_point
    return not x.dtype.is_floating_point and isinstance(other, int | torch.SymInt)


def _remainder(x: Tensor, y: Any) -> Tensor:  # noqa: ANN401
    """Return a remainder of the divisor's sign; ExecuTorch's kernel uses the dividend's."""
    rest = torch.fmod(x, y)
    return torch.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def _bicubic(x: Tensor, *args: Any) -> Any:  # noqa: ANN401
    """Resize a contiguous tensor: the result has the layout of ``x``, which few kernels take."""
    if x.is_contiguous():
        return NotImplemented
    return aten.upsample_bicubic2d.vec(x.contiguous(), *args)


def _is_half(x: Tensor, *_: object, **__: object) -> bool:
    return x.dtype in _HALF


def _in_float32(op: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes in float32 and rounds the results, as TensorRT does."""
    # Most of ExecuTorch's kernels add in the tensors' dtype, in which a sum stops growing. ``mm``
    # and ``bmm`` add half-precision numbers in float32, but take several times longer.

    def part(*args: Any, **more: Any) -> Any:  # noqa: ANN401
        wide = tree_map_only(Tensor, lambda x: x.float() if _is_half(x) else x, (args, more))
        return tree_map_only(
            Tensor, lambda result: result.to(args[0].dtype), op(*wide[0], **wide[1])
        )

    return part


def _is_square(x: Tensor) -> bool:
    """Return whether two sizes of rows are the same dynamic size, as those of pairs are.

    Torch computes the sizes of their products as quotients, such as ``n**2 // n``. ExecuTorch's
    bound of these is too high: its runtime then has no memory for the tensor.
    """
    sizes: list[Any] = list(x.shape[:-1])
    dynamic = [size.node.expr for size in sizes if isinstance(size, torch.SymInt)]
    return x.dim() in (3, 4) and len(set(dynamic)) < len(dynamic)


def _is_half_or_square(x: Tensor, y: Any, *_: object) -> bool:  # noqa: ANN401
    weight = y.meta["val"] if isinstance(y, torch.fx.Node) else y
    return _is_half(x) or (_is_square(x) and weight.dim() == 2)


def _matmul(x: Tensor, y: Tensor) -> Tensor:
    return _linear(x, y.mT) if _is_square(x) and y.dim() == 2 else x @ y


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply rows by a convolution, whose sizes are the sizes of ``x``."""
    if not _is_square(x):
        return functional.linear(x, weight, bias)
    image = x.reshape([*[1] * (4 - x.dim()), *x.shape]).permute(0, 3, 1, 2)
    rows = functional.conv2d(image, weight[:, :, None, None], bias).permute(0, 2, 3, 1).contiguous()
    return rows if x.dim() == 4 else rows.squeeze(0)


def _is_half_or_volume(x: Tensor, *_: object, **__: object) -> bool:
    return _is_half(x) or _is_volume(x)


def _half_or_volume(x: Tensor, *args: Any) -> Any:  # noqa: ANN401
    convolve = _in_float32(aten.convolution.default) if _is_half(x) else _convolution
    return convolve(x, *args)


def _dequantize(
    x: Tensor,
    scale: float,
    zero_point: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    # With out_dtype, torch's function computes in half precision, unlike eager's.
    value = pt2e.dequantize_per_tensor(x, scale, zero_point, low, high, dtype)
    return value.to(out_dtype or torch.float32)


_IN_FLOAT32: Final = (
    *(aten.mm.default, aten.bmm.default),
    *(aten.addmm.default, aten.native_layer_norm.default, aten._native_batch_norm_legit.no_stats),
    *(aten.var.correction, aten.var_mean.correction, aten.scatter_add.default),
    *(aten.avg_pool1d.default, aten.avg_pool2d.default, aten.instance_norm.default),
)
_PARTS: Final[dict[object, Callable[..., Any]]] = {
    aten.max_pool3d.default: _max_pool3d,
    aten.adaptive_avg_pool3d.default: _adaptive_avg_pool3d,
    aten._adaptive_avg_pool3d.default: _adaptive_avg_pool3d,
    aten.avg_pool3d.default: _avg_pool3d,
    aten.convolution.default: _half_or_volume,
    aten.sort.default: _sort,
    **dict.fromkeys(EMBEDDING_BAG.targets, embedding_bag),
    aten.constant_pad_nd.default: _pad,
    aten.pad.default: _pad_plainly,
    aten.cumsum.default: _cumsum,
    aten.remainder.Scalar: _remainder,
    aten.remainder.Tensor: _remainder,
    aten.scatter_reduce.two: scatter_reduce,
    aten.upsample_bicubic2d.vec: _bicubic,
    **{op: _in_float32(op) for op in _IN_FLOAT32},
    aten.linear.default: _in_float32(_linear),
    aten.matmul.default: _in_float32(_matmul),
    _pt2e.quantize_per_tensor.default: pt2e.quantize_per_tensor,
    _pt2e.quantize_per_channel.default: pt2e.quantize_per_channel,
    _pt2e.dequantize_per_tensor.default: _dequantize,
    _pt2e.dequantize_per_channel.default: pt2e.dequantize_per_channel,
    FAKE_QUANTIZE: fake_quantize,
}
# The kernel takes the other calls of these operators.
_ONLY_IF: Final[dict[object, Callable[..., bool]]] = {
    aten.convolution.default: _is_half_or_volume,
    aten.constant_pad_nd.default: _crops,
    aten.pad.default: _crops_plainly,
    aten.cumsum.default: _is_number_or_half,
    aten.remainder.Scalar: _is_of_integers,
    aten.remainder.Tensor: _is_of_integers,
    **dict.fromkeys(_IN_FLOAT32, _is_half),
    **dict.fromkeys((aten.linear.default, aten.matmul.default), _is_half_or_square),
}
