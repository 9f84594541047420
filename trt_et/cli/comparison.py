"""Compares a program's outputs with the eager model's."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from trt_et.cli.arrays import compare_arrays, to_numpy
from trt_et.cli.inputs import check_inputs, make_inputs
from trt_et.cli.models import export_module, load_model
from trt_et.cli.program import LoadedMethod, Request
from trt_et.errors import OptionError, RunError

__all__ = ["compare"]


def compare(request: Request) -> dict[str, Any]:
    """Run the program and the model of a request on the same inputs.

    The inputs are the model's example inputs unless the request has inputs or shapes.
    """
    program = LoadedMethod(request)
    model = load_model(request.eager)
    inputs, spec = pytree.tree_flatten((model.args, model.kwargs))
    if request.inputs or request.shapes:
        inputs = make_inputs(program.method, request.inputs, request.shapes, request.seed)
        _check_equal("takes", "inputs", len(inputs), spec.num_leaves)
    facts: dict[str, Any] = {}
    if request.per_partition:  # Before the model is called, which may change its state.
        from trt_et.cli.partition_comparison import compare_partitions

        exported = export_module(request.eager, model)
        facts["partitions"] = compare_partitions(request, program.method, exported, inputs)
    try:
        check_inputs(program.method, inputs)
    except OptionError as error:
        raise RunError(
            f"the program does not take the model's example inputs: {error}; was it exported "
            "from this model?"
        ) from None
    # The model may write into its inputs.
    copies = [i.clone() if isinstance(i, torch.Tensor) else i for i in inputs]
    outputs = [to_numpy(value) for value in program(copies)]
    args, kwargs = pytree.tree_unflatten(inputs, spec)
    with torch.no_grad():
        expected = [to_numpy(value) for value in pytree.tree_leaves(model.module(*args, **kwargs))]
    _check_equal("has", "outputs", len(outputs), len(expected))
    facts["outputs"] = [compare_arrays(*pair) for pair in zip(outputs, expected, strict=True)]
    return facts


def _check_equal(verb: str, what: str, count: int, expected: int) -> None:
    if count != expected:
        raise RunError(
            f"the program {verb} {count} {what}, the model {expected}; was it exported from this "
            "model?"
        )
