"""Pooling to a size, and resizing by a factor, as weighted sums of gathered elements.

Such an operator is linear along each dimension; torch applied to the identity gives its matrix.
Torch-TensorRT 2.13 uses windows of one size for adaptive averages, which is right only if the new
size divides the old one. By TensorRT's documentation a resize takes its step from the two lengths;
torch takes it from the factor: 5 elements by 1.3 are 6, and 5 / 6 is not 1 / 1.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.nn import functional

from trt_et.graph.insertion import insert_call

__all__ = ["ADAPTIVE_AVERAGES", "resample_by_weighted_sums"]

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


def resample_by_weighted_sums(module: GraphModule) -> None:
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
        return  # By size: torch also takes the step from the lengths.
    corners = node.target not in _NEAREST and bool(node.args[2])
    sizes = _spatial(node, len(factors))
    if corners or sizes is None or not all(isinstance(by, float) for by in factors):
        return
    if all((size * by).is_integer() for size, by in zip(sizes, factors, strict=True)):
        return

    def along(by: float) -> Line:
        if node.target in _CUBIC:
            return lambda lines: _cubic(lines, by)
        mode = "nearest" if node.target in _NEAREST else "linear"
        return lambda lines: functional.interpolate(lines, scale_factor=by, mode=mode)

    _replace(module, node, sizes, [along(by) for by in factors])


def _cubic(lines: torch.Tensor, by: float) -> torch.Tensor:
    # In the middle of an image no two of a column's terms are the same row.
    image = functional.pad(lines.unsqueeze(2), [0, 0, 4, 4])
    return functional.interpolate(image, scale_factor=(1.0, by), mode="bicubic")[:, :, 4]


def _replace(module: GraphModule, node: Node, sizes: list[int], lines: list[Line]) -> None:
    result = node.args[0]
    assert isinstance(result, Node)
    dtype, rank = result.meta["val"].dtype, result.meta["val"].dim()
    is_nearest = node.target in _NEAREST
    if dtype is not torch.float32 and not is_nearest:
        result = insert_call(node, aten._to_copy.default, result, dtype=torch.float32)
    for index, (size, line) in enumerate(zip(sizes, lines, strict=True)):
        dim = rank - len(sizes) + index
        # Row i holds the factors of element i of a line in the elements of the new line.
        matrix = line(torch.eye(size, dtype=torch.float64).unsqueeze(0))[0]
        if _reaches_itself_only(matrix, line, is_nearest=is_nearest):
            continue
        name = f"_resampling_{node.name}_{index}"
        if is_nearest:
            indices = _constant(module, node, name, matrix.argmax(0))
            result = insert_call(node, aten.index_select.default, result, dim, indices)
            continue
        terms, weights = _terms(matrix, line)
        shape = [*weights.shape, *[1] * (rank - 1 - dim)]
        places_node = _constant(module, node, f"{name}_places", terms)
        weights_node = _constant(module, node, name, weights.reshape(shape))
        gathered = insert_call(node, aten.index.Tensor, result, [*[None] * dim, places_node])
        weighted = insert_call(node, aten.mul.Tensor, gathered, weights_node)
        result = insert_call(node, aten.sum.dim_IntList, weighted, [dim + 1])
    if dtype is not torch.float32 and not is_nearest:
        result = insert_call(node, aten._to_copy.default, result, dtype=dtype)
    node.replace_all_uses_with(result)


def _reached(line: Line, size: int) -> torch.Tensor:
    """Return each element of the new line for an infinity at each element of the old line."""
    return line(_infinities(size).unsqueeze(0))[0]


def _infinities(size: int) -> torch.Tensor:
    # diag() fills the other elements with zeros; inf * 0 of a masked product would be NaN.
    return torch.full((size,), math.inf, dtype=torch.float64).diag()


def _reaches_itself_only(matrix: torch.Tensor, line: Line, *, is_nearest: bool) -> bool:
    old, new = matrix.shape
    if old != new or not bool((matrix == torch.eye(old)).all()):
        return False
    # A resize by 1 adds the next element 0 times.
    return is_nearest or torch.equal(_reached(line, old), _infinities(old))


def _terms(matrix: torch.Tensor, line: Line) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the elements that each new element adds, and how often: both ``[new, terms]``.

    A product with the whole matrix would let one infinity reach every element, as 0 * inf is not a
    number. So torch computes which elements an infinity at each element reaches, including those
    that add it 0 times, or that add and subtract it; both make them NaN.
    """
    reached = _reached(line, matrix.shape[0])
    columns: list[list[tuple[int, float]]] = []
    for new in range(matrix.shape[1]):
        terms: list[tuple[int, float]] = []
        for index in torch.nonzero(~torch.isfinite(reached[:, new]))[:, 0].tolist():
            weight = float(matrix[index, new])
            if weight and bool(torch.isnan(reached[index, new])):
                terms += [(index, 2 * weight), (index, -weight)]
            else:
                terms.append((index, weight))
        columns.append(terms)
    longest = max(len(terms) for terms in columns)
    for terms in columns:
        while len(terms) < longest:
            # Split the largest term: a term of 0 would turn an infinity into NaN.
            index, weight = terms.pop(max(range(len(terms)), key=lambda i: abs(terms[i][1])))
            terms += [(index, weight / 2), (index, weight / 2)]
    indices = torch.tensor([[index for index, _ in terms] for terms in columns])
    weights = torch.tensor([[weight for _, weight in terms] for terms in columns])
    return indices, weights.to(torch.float32)


def _constant(module: GraphModule, before: Node, name: str, value: torch.Tensor) -> Node:
    module.register_buffer(name, value)
    with module.graph.inserting_before(before):
        node = module.graph.get_attr(name)
    node.meta["val"] = before.meta["val"].fake_mode.from_tensor(value)
    return node
