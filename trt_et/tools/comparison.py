"""A program's outputs beside those of the eager model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from trt_et.errors import RunError
from trt_et.tools.eager import load_model
from trt_et.tools.inputs import make_inputs, to_numpy
from trt_et.tools.requests import Request

__all__ = ["compare", "compare_arrays"]


def compare(request: Request, load: Callable[[Request], Any]) -> dict[str, Any]:
    """Run both on the same inputs.

    Args:
        request: With ``eager``, and inputs unless the example inputs are to be used.
        load: From a request to a callable program.
    """
    import torch
    from torch.utils import _pytree as pytree

    program = load(request)
    module, examples, _ = load_model(request.eager)
    inputs = pytree.tree_leaves(examples)
    if request.inputs or request.shapes:
        shapes = {int(index): shape for index, shape in request.shapes.items()}
        inputs = make_inputs(program.method, request.inputs, shapes, request.seed)
        spec = pytree.tree_structure(examples)
        if spec.num_leaves != len(inputs):
            raise RunError(
                f"the program takes {len(inputs)} inputs, the model {spec.num_leaves}; was it "
                "exported from this model?"
            )
        examples = pytree.tree_unflatten(inputs, spec)
    # The model may write into its inputs.
    copies = [i.clone() if isinstance(i, torch.Tensor) else i for i in inputs]
    found = [to_numpy(value) for value in program(copies)]
    with torch.no_grad():
        expected = [to_numpy(value) for value in pytree.tree_leaves(module(*examples))]
    if len(found) != len(expected):
        raise RunError(
            f"the program has {len(found)} outputs, the model {len(expected)}; was it exported "
            "from this model?"
        )
    return {"outputs": [compare_arrays(*pair) for pair in zip(found, expected, strict=True)]}


def compare_arrays(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> dict[str, Any]:
    """How far two arrays are apart; NaNs and infinities that both have are equal.

    Returns:
        ``shape``, ``expected_shape``, ``nans`` and ``expected_nans``; where the shapes are equal
        also ``largest_error``, ``largest_relative_error`` (to the largest expected value) and
        ``cosine``.
    """
    facts: dict[str, Any] = {"shape": list(found.shape), "expected_shape": list(expected.shape)}
    one, other = found.astype(np.float64), expected.astype(np.float64)
    facts |= {"nans": int(np.isnan(one).sum()), "expected_nans": int(np.isnan(other).sum())}
    if one.shape != other.shape:
        return facts
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    both = np.isfinite(one) & np.isfinite(other)
    error = np.where(same, 0.0, np.where(both, np.abs(np.where(both, one - other, 0.0)), math.inf))
    largest = float(error.max(initial=0.0))
    scale = float(np.abs(other[both]).max(initial=0.0))
    norms = float(np.linalg.norm(one[both]) * np.linalg.norm(other[both]))
    cosine = float(np.dot(one[both], other[both]) / norms) if norms else float(largest == 0)
    relative = largest / scale if scale else (0.0 if largest == 0 else math.inf)
    return facts | {
        "largest_error": largest,
        "largest_relative_error": relative,
        "cosine": min(1.0, cosine),
    }
