"""Linear functions along dimensions, as weighted sums of gathered elements.

Pooling to a size and resizing by a factor are linear along each dimension; torch applied to the
identity gives the matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from trt_et.conversion.operators.types import cast
from trt_et.graph.insertion import insert_call, insert_constant

aten = torch.ops.aten

Line = Callable[[torch.Tensor], torch.Tensor]


def weighted_sums(
    node: Node, sizes: Sequence[int], lines: Sequence[Line], *, is_nearest: bool = False
) -> Node:
    """Return a node's first argument after a linear function along each of its last dimensions.

    Args:
        node: The call that the new calls precede.
        sizes: The sizes of those dimensions.
        lines: For each of them, the function of ``[n, size]``.
        is_nearest: Whether each new element is one old element.
    """
    result: Any = node.args[0]
    dtype, rank = result.meta["val"].dtype, result.meta["val"].dim()
    if not is_nearest:
        result = cast(node, result, torch.float32)
    for index, (size, line) in enumerate(zip(sizes, lines, strict=True)):
        dim = rank - len(sizes) + index
        # Row i holds the factors of element i of a line in the elements of the new line.
        matrix = line(torch.eye(size, dtype=torch.float64).unsqueeze(0))[0]
        if _reaches_itself_only(matrix, line, is_nearest=is_nearest):
            continue
        name = f"_resampling_{node.name}_{index}"
        if is_nearest:
            indices = insert_constant(node, name, matrix.argmax(0))
            result = insert_call(node, aten.index_select.default, result, dim, indices)
            continue
        terms, weights = _terms(matrix, line)
        shape = [*weights.shape, *[1] * (rank - 1 - dim)]
        places_node = insert_constant(node, f"{name}_places", terms)
        weights_node = insert_constant(node, name, weights.reshape(shape))
        gathered = insert_call(node, aten.index.Tensor, result, [*[None] * dim, places_node])
        weighted = insert_call(node, aten.mul.Tensor, gathered, weights_node)
        result = insert_call(node, aten.sum.dim_IntList, weighted, [dim + 1])
    return cast(node, result, dtype)  # type: ignore[no-any-return]


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
