"""Whole models, as people bring them, run like eager on simulated GPUs.

CI takes the families that every release must know, and those that once found a defect. It runs some
of them and builds the others; ``make zoo`` does both with all.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.support.simulated_gpus import load_runtime
from tests.support.zoo.lowered import TO_RUN, check_plan, lower, make


@pytest.mark.parametrize("name", TO_RUN)
def test_it_runs_like_eager_on_a_simulated_gpu(name):
    from executorch.runtime import Runtime

    load_runtime()
    case = make(name)
    # Exporting and calling change buffers; what was exported began where this copy does.
    eager = copy.deepcopy(case.model)
    pte, partitioner = lower(case, "reference")
    check_plan(case, pte, partitioner)
    method = Runtime.get().load_program(pte).load_method("forward")
    for call in (case.inputs, *case.calls):
        found = method.execute(pytree.tree_leaves(call))
        with torch.no_grad():
            expected = pytree.tree_leaves(eager(*call))
        for have, want in zip(found, expected, strict=True):
            torch.testing.assert_close(have, want, atol=case.atol, rtol=case.atol)
