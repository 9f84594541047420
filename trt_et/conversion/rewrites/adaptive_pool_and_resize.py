"""Pooling to a size, and resizing by a factor, as products with constant matrices.

Such an operator is linear along each dimension; torch applied to the identity gives its matrix.
Torch-TensorRT 2.13 uses windows of one size for adaptive averages, which is right only where the
sizes divide. By TensorRT's documentation a resize takes its step from the two lengths; torch takes
it from the factor: 5 elements by 1.3 are 6, and 5 / 6 is not 1 / 1.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.nn import functional

from trt_et.graph.insertion import insert_call

__all__ = ["ADAPTIVE_AVERAGES", "resample_by_matrix"]

aten = torch.ops.aten

ADAPTIVE_AVERAGES: Final = (
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
    aten._adaptive_avg_pool3d.default,
)
_NEAREST: Final = (
    aten.upsample_nearest1d.vec,
    aten.upsample_nearest2d.vec,
    aten.upsample_nearest3d.vec,
)
_LINEAR: Final = (
    aten.upsample_linear1d.vec,
    aten.upsample_bilinear2d.vec,
    aten.upsample_trilinear3d.vec,
)
_CUBIC: Final = (aten.upsample_bicubic2d.vec,)

Line = Callable[[torch.Tensor], torch.Tensor]


def resample_by_matrix(module: GraphModule) -> None:
    """Replace the averages and resizes that TensorRT would compute differently.

    Args:
        module: Plain ATen, with ``val`` metadata; changed in place.
    """
    for node in list(module.graph.nodes):
        if node.target in ADAPTIVE_AVERAGES:
            _average(module, node)
        elif node.target in (*_NEAREST, *_LINEAR, *_CUBIC):
            _resize(module, node)
    module.graph.eliminate_dead_code()
    module.recompile()


def _spatial(node: Node, number: int) -> list[int] | None:
    source = node.args[0]
    assert isinstance(source, Node)
    sizes = list(source.meta["val"].shape[-number:])
    return sizes if all(isinstance(size, int) for size in sizes) else None


def _has_dynamic_sizes(node: Node) -> bool:
    return any(not isinstance(size, int) for size in node.args[0].meta["val"].shape)  # type: ignore[union-attr]


def _average(module: GraphModule, node: Node) -> None:
    wanted: Any = node.args[1]
    sizes = _spatial(node, len(wanted))
    if not all(isinstance(want, int) for want in wanted):
        return
    if all(want == 1 for want in wanted) and _has_dynamic_sizes(node):
        dims = list(range(-len(wanted), 0))
        node.replace_all_uses_with(insert_call(node, aten.mean.dim, node.args[0], dims, True))
        return
    if sizes is None or all(
        size % want == 0 for size, want in zip(sizes, wanted, strict=True) if want
    ):
        return

    def along(want: int) -> Line:
        return lambda lines: functional.adaptive_avg_pool1d(lines, want)

    _replace(module, node, sizes, [along(want) for want in wanted])


def _resize(module: GraphModule, node: Node) -> None:
    factors: Any = node.args[-1] if isinstance(node.args[-1], list | tuple) else None
    if factors is None or node.args[1] is not None:
        return  # By size: torch, too, takes the step from the lengths.
    corners = node.target not in _NEAREST and bool(node.args[2])
    sizes = _spatial(node, len(factors))
    if corners or sizes is None or not all(isinstance(by, float) for by in factors):
        return
    if all((size * by).is_integer() for size, by in zip(sizes, factors, strict=True)):
        return

    def along(by: float) -> Line:
        if node.target in _CUBIC:
            return lambda lines: functional.interpolate(
                lines.unsqueeze(2), scale_factor=(1.0, by), mode="bicubic"
            ).squeeze(2)
        mode = "nearest" if node.target in _NEAREST else "linear"
        return lambda lines: functional.interpolate(lines, scale_factor=by, mode=mode)

    _replace(module, node, sizes, [along(by) for by in factors])


def _replace(module: GraphModule, node: Node, sizes: list[int], lines: list[Line]) -> None:
    result = node.args[0]
    assert isinstance(result, Node)
    dtype, rank = result.meta["val"].dtype, result.meta["val"].dim()
    for index, (size, line) in enumerate(zip(sizes, lines, strict=True)):
        dim = rank - len(sizes) + index
        # Row i: what element i of a line adds to each element of the new line.
        matrix = line(torch.eye(size, dtype=torch.float64).unsqueeze(0))[0]
        if matrix.shape[0] == matrix.shape[1] and bool((matrix == torch.eye(size)).all()):
            continue
        name = f"_resampling_{node.name}_{index}"
        if node.target in _NEAREST:
            indices = _constant(module, node, name, matrix.argmax(0))
            result = insert_call(node, aten.index_select.default, result, dim, indices)
            continue
        factor = _constant(module, node, name, matrix.to(dtype))
        order = [*range(dim), *range(dim + 1, rank), dim]
        back = [*range(dim), rank - 1, *range(dim, rank - 1)]
        if dim < rank - 1:
            result = insert_call(node, aten.permute.default, result, order)
        result = insert_call(node, aten.matmul.default, result, factor)
        if dim < rank - 1:
            result = insert_call(node, aten.permute.default, result, back)
    node.replace_all_uses_with(result)


def _constant(module: GraphModule, before: Node, name: str, value: torch.Tensor) -> Node:
    module.register_buffer(name, value)
    with module.graph.inserting_before(before):
        node = module.graph.get_attr(name)
    node.meta["val"] = before.meta["val"].fake_mode.from_tensor(value)
    return node
