"""A program's outputs beside those of the eager model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trt_et.errors import OptionError, RunError
from trt_et.tools.arrays import compare_arrays
from trt_et.tools.eager import load_model
from trt_et.tools.inputs import check_inputs, make_inputs, to_numpy
from trt_et.tools.requests import Request

__all__ = ["compare"]


def compare(request: Request, load: Callable[[Request], Any]) -> dict[str, Any]:
    """Run both on the same inputs.

    Args:
        request: With ``eager``, and inputs unless the example inputs are to be used.
        load: From a request to a callable program.
    """
    import torch
    from torch.utils import _pytree as pytree

    program = load(request)
    module, examples, dynamic_shapes = load_model(request.eager)
    example_inputs = examples
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
    facts: dict[str, Any] = {}
    if request.per_partition:  # Before the model is called, which may change its state.
        from trt_et.tools.exporting import export_module
        from trt_et.tools.partition_comparison import compare_partitions

        exported = export_module(request.eager, module, example_inputs, dynamic_shapes)
        facts["partitions"] = compare_partitions(request, load, program.method, exported, inputs)
    try:
        check_inputs(program.method, inputs)
    except OptionError as error:
        raise RunError(
            f"the program does not take the model's example inputs: {error}; was it exported "
            "from this model?"
        ) from None
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
    facts["outputs"] = [compare_arrays(*pair) for pair in zip(found, expected, strict=True)]
    return facts
