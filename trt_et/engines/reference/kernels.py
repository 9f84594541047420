"""Decomposes operators that TensorRT runs and ExecuTorch's CPU kernels do not.

Three-dimensional pooling and convolution, slice by slice; sorting by ``topk``; embedding bags and
scatters that reduce, by a matrix; negative padding; cumulative sums of a single number;
remainders of negative integers; bicubic resizing of a permuted tensor; layer normalization in
half precision. Only the reference builder needs this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.nn import functional

from trt_et.conversion.operators.embedding_bag import EMBEDDING_BAG, embedding_bag
from trt_et.conversion.operators.scatter_reduce import scatter_reduce
from trt_et.engines.reference.quantization import QUANTIZATION_PARTS
from trt_et.ops.quantize import is_fake_quantize, is_quantize_layer

__all__ = ["decompose_for_cpu_kernels"]

aten = torch.ops.aten

_Sizes = int | Sequence[int]


def decompose_for_cpu_kernels(program: ExportedProgram) -> ExportedProgram:
    """Decompose the operators of this file; return the same program if it has none of them.

    Args:
        program: Plain ATen; not changed.
    """
    used = {node.target for node in program.graph.nodes if _lacks_kernel(node)}
    return program.run_decompositions({op: _part(op) for op in used}) if used else program


def _part(op: OpOverload) -> Callable[..., Any]:
    return QUANTIZATION_PARTS.get(op._schema.name) or _PARTS[op]


def _lacks_kernel(node: torch.fx.Node) -> bool:
    if is_quantize_layer(node.target) or is_fake_quantize(node.target):
        return True
    if node.op != "call_function" or node.target not in _PARTS:
        return False
    applies = _ONLY_WHERE.get(node.target)
    return applies is None or applies(*_arguments(node))


def _arguments(node: torch.fx.Node) -> tuple[Any, ...]:
    return (node.args[0].meta["val"], *node.args[1:])  # type: ignore[union-attr]


def _is_volume(x: Tensor, *_: object) -> bool:
    return x.dim() == 5


def _triple(value: _Sizes) -> tuple[int, int, int]:
    numbers = [value] if isinstance(value, int) else list(value)
    numbers = numbers * 3 if len(numbers) == 1 else numbers
    return (numbers[0], numbers[1], numbers[2])


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
    kernel, pad, spread = _triple(kernel_size), _triple(padding), _triple(dilation)
    step = _triple(stride) if stride else kernel
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
    step = _triple(stride) if stride else kernel
    # With divisor_override, both steps are sums.
    divisors = (None, None) if divisor_override is None else (1, 1)
    given = iter(divisors)
    y = _planes_then_depth(
        x,
        lambda y, of: functional.avg_pool2d(
            y,
            of((*kernel, 1)),
            of((*step, 1)),
            of((*pad, 0)),
            ceil_mode,
            count_include_pad,
            next(given),
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
) -> Any:  # noqa: ANN401
    if not _is_volume(x):
        return NotImplemented
    if transposed:
        result = _deconvolution(
            x, weight, stride, padding, dilation, _triple(output_padding), groups
        )
        return result if bias is None else result + bias.reshape(1, -1, 1, 1, 1)
    step, pad, spread = _triple(stride), _triple(padding), _triple(dilation)
    deep = functional.pad(x, [0, 0, 0, 0, pad[0], pad[0]])
    taps = weight.shape[2]
    depth = (deep.shape[2] - spread[0] * (taps - 1) - 1) // step[0] + 1
    total: Tensor | None = None
    for tap in range(taps):
        start = tap * spread[0]
        part = deep[:, :, start : start + (depth - 1) * step[0] + 1 : step[0]]
        planes = part.permute(0, 2, 1, 3, 4).reshape(-1, x.shape[1], *x.shape[3:])
        y = functional.conv2d(
            planes, weight[:, :, tap], None, step[1:], pad[1:], spread[1:], groups
        )
        total = y if total is None else total + y
    if total is None:
        raise ValueError("a convolution has at least one tap")
    result = total.reshape(x.shape[0], depth, *total.shape[1:]).permute(0, 2, 1, 3, 4)
    return result if bias is None else result + bias.reshape(1, -1, 1, 1, 1)


def _deconvolution(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    step, pad, spread = _triple(stride), _triple(padding), _triple(dilation)
    taps, depth = weight.shape[2], x.shape[2]
    planes = x.permute(0, 2, 1, 3, 4).reshape(-1, x.shape[1], *x.shape[3:])
    full_depth = (depth - 1) * step[0] + spread[0] * (taps - 1) + 1
    total: Tensor | None = None
    for tap in range(taps):
        y = functional.conv_transpose2d(
            planes,
            weight[:, :, tap],
            None,
            step[1:],
            pad[1:],
            output_padding[1:],
            groups,
            spread[1:],
        )
        y = y.reshape(x.shape[0], depth, 1, *y.shape[1:])
        # Zeros after each slice, then zeros for the other taps around them.
        y = functional.pad(y, [0, 0, 0, 0, 0, 0, 0, step[0] - 1]).flatten(1, 2)
        y = y[:, : (depth - 1) * step[0] + 1]
        start = tap * spread[0]
        y = functional.pad(y, [0, 0, 0, 0, 0, 0, start, full_depth - y.shape[1] - start])
        total = y if total is None else total + y
    if total is None:
        raise ValueError("a convolution has at least one tap")
    total = functional.pad(total, [0, 0, 0, 0, 0, 0, 0, output_padding[0]])
    total = total[:, pad[0] : total.shape[1] - pad[0]]
    return total.permute(0, 2, 1, 3, 4)


def _crops(_: Tensor, pad: Sequence[int], *__: object) -> bool:
    return any(isinstance(size, int) and size < 0 for size in pad)


def _pad(x: Tensor, pad: Sequence[int], value: float = 0) -> Any:  # noqa: ANN401
    """Pad also with negative sizes, which crop; the kernel takes only positive sizes."""
    if not _crops(x, pad):
        return NotImplemented
    for index in range(len(pad) // 2):
        low, high = (max(-size, 0) for size in pad[2 * index : 2 * index + 2])
        dim = x.dim() - 1 - index
        x = x.narrow(dim, low, x.shape[dim] - low - high)
    return functional.pad(x, [max(size, 0) for size in pad], value=value)


def _crops_plainly(x: Tensor, pad: Sequence[int], mode: str = "constant", *__: object) -> bool:
    return mode == "constant" and _crops(x, pad)


def _pad_by_mode(
    x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Any:  # noqa: ANN401
    return _pad(x, pad, value or 0) if mode == "constant" else NotImplemented


def _is_number(x: Tensor, *_: object) -> bool:
    return x.dim() == 0


def _cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:  # noqa: ANN401
    if not _is_number(x):
        return NotImplemented
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


def _remainder(x: Tensor, y: Any) -> Any:  # noqa: ANN401
    """Return a remainder of the divisor's sign; ExecuTorch's kernel uses the dividend's."""
    rest = torch.fmod(x, y)
    if rest.dtype.is_floating_point:
        return NotImplemented
    return torch.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def _bicubic(x: Tensor, *args: Any) -> Any:  # noqa: ANN401
    """Resize a contiguous tensor: the result has the layout of ``x``, which few kernels take."""
    if x.is_contiguous():
        return NotImplemented
    return aten.upsample_bicubic2d.vec(x.contiguous(), *args)


def _is_half(x: Tensor, *_: object) -> bool:
    return x.dtype in (torch.float16, torch.bfloat16)


def _native_layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:  # noqa: ANN401
    """Normalize in float32.

    The kernel of ExecuTorch 1.5 adds in the tensor's dtype, in which a sum stops growing; its main
    branch adds in float32.
    """
    if not _is_half(x):
        return NotImplemented
    scale, shift = (None if t is None else t.float() for t in (weight, bias))
    results = aten.native_layer_norm.default(x.float(), shape, scale, shift, eps)
    return tuple(result.to(x.dtype) for result in results)


_PARTS: Final[dict[OpOverload, Callable[..., Any]]] = {
    aten.max_pool3d.default: _max_pool3d,
    aten.adaptive_avg_pool3d.default: _adaptive_avg_pool3d,
    aten._adaptive_avg_pool3d.default: _adaptive_avg_pool3d,
    aten.avg_pool3d.default: _avg_pool3d,
    aten.convolution.default: _convolution,
    aten.sort.default: _sort,
    **dict.fromkeys(EMBEDDING_BAG.targets, embedding_bag),
    aten.constant_pad_nd.default: _pad,
    aten.pad.default: _pad_by_mode,
    aten.cumsum.default: _cumsum,
    aten.remainder.Scalar: _remainder,
    aten.remainder.Tensor: _remainder,
    aten.scatter_reduce.two: scatter_reduce,
    aten.upsample_bicubic2d.vec: _bicubic,
    aten.native_layer_norm.default: _native_layer_norm,
}
# The kernel takes some calls of these operators.
_ONLY_WHERE: Final[dict[object, Callable[..., bool]]] = {
    aten.convolution.default: _is_volume,
    aten.constant_pad_nd.default: _crops,
    aten.pad.default: _crops_plainly,
    aten.cumsum.default: _is_number,
    aten.remainder.Scalar: _is_of_integers,
    aten.remainder.Tensor: _is_of_integers,
    aten.native_layer_norm.default: _is_half,
}
