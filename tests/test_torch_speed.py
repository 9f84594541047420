"""What tests patch in torch to be faster gives the kernels and rules that torch itself gives."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch._subclasses import fake_impls
from torch.export import exported_program

from tests.support import torch_speed


def description(function: Any) -> Any:
    if isinstance(function, partial):
        return function.func.__qualname__, function.keywords.keys()
    return getattr(function, "__qualname__", function)


def snapshot(operators: Any) -> dict[Any, Any]:
    """Which function an operator has for each key, and which for fake tensors."""
    rules = fake_impls.op_implementations_dict
    return {
        operator: (
            {key: description(kernel) for key, kernel in operator.py_kernels.items()},
            description(rules.get(operator)),
        )
        for operator in operators
    }


def test_a_decomposition_sees_the_same_kernels_with_and_without_the_patch():
    table = exported_program._split_decomp_table_to_cia_and_python_decomp(
        dict(exported_program.default_decompositions().items())
    )[0]
    assert len(table) > 300
    # A rule that somebody else made is lost with torch's own function, too, after the first time.
    with torch_speed._override(table):
        pass
    before = snapshot(table)
    with torch_speed._override(table):
        expected = snapshot(table)
    assert expected != before
    for _ in range(2):
        with torch_speed._override_once(table):
            assert snapshot(table) == expected
        assert snapshot(table) == before
