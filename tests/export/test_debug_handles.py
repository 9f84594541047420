"""What ties an engine's events to the model's operators."""

from __future__ import annotations

from typing import Any

import torch

from tests.support.lowering import finish, reference
from tests.support.models import Function

MODEL = Function(lambda x: (torch.relu(x) * 3).cumsum(0) + torch.relu(x * 2))


def lowered(**options: Any) -> Any:
    exported = torch.export.export(MODEL, (torch.ones(2, 4),))
    partitioner = reference(excluded_ops=["aten.cumsum"], progress=False, **options)
    return finish(exported, partitioner, generate_etrecord=True)


def maps(program: Any) -> list[dict[str, tuple[int, ...]]]:
    return [entry["delegate_map"] for entry in program.delegate_map["forward"].values()]


def operators(program: Any) -> dict[int, str]:
    """The operator of each debug handle, from the ETRecord."""
    graph = program.get_etrecord().edge_dialect_program.graph
    return {
        node.meta["debug_handle"]: str(node.target)
        for node in graph.nodes
        if node.op == "call_function" and "debug_handle" in node.meta
    }


def test_each_call_of_an_engine_has_the_handle_of_its_operator():
    program = lowered()
    names = operators(program)
    first, second = maps(program)
    for call, operator in (("relu_0", "aten.relu.default"), ("mul_0", "aten.mul.Tensor")):
        assert operator in names[(first | second)[call][0]]
    # A reference engine has all of them.
    for mapping in (first, second):
        whole = mapping["reference engine"]
        assert len(whole) > 1
        assert {handle for handles in mapping.values() for handle in handles} == set(whole)


def test_an_engine_from_the_cache_has_the_map_of_the_built_one(tmp_path):
    built = maps(lowered(cache=tmp_path))
    assert maps(lowered(cache=tmp_path)) == built
    assert built[0] != built[1]
