"""An export of which everything is in the cache: the same bytes, and no TensorRT is imported."""

from __future__ import annotations

import hashlib
import json
import operator
import subprocess
import sys

import pytest
import torch
from torch import nn

from tests.support.lowering import export, lower
from trt_et import TensorRTPartitioner
from trt_et.conversion.installed import installed_variant
from trt_et.engines import fingerprint, support_check
from trt_et.engines.support_check import SupportCache, fragment_signature
from trt_et.graph.fragment import fragment_of_call

pytestmark = pytest.mark.skipif(
    installed_variant() != "tensorrt_rtx", reason="torch-tensorrt-rtx is not installed"
)


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch):
    monkeypatch.setattr(support_check, "_KNOWN", {})


SCRIPT = """
import hashlib, json, sys
from tests.support.lowering import export, lower
digests = [
    hashlib.sha256(lower(export(name), builder=builder, cache=sys.argv[1])).hexdigest()
    for name, builder in json.loads(sys.argv[2])
]
names = ("torch_tensorrt", "tensorrt", "tensorrt_rtx", "tensorrt_libs")
print(json.dumps([digests, [name for name in names if name in sys.modules]]))
"""


@pytest.mark.long
def test_a_warm_export_in_a_fresh_process_imports_no_tensorrt(tmp_path):
    cases = [("mlp", "tensorrt_rtx"), ("cnn", "reference"), ("split", "auto")]
    here = [
        hashlib.sha256(lower(export(name), builder=builder, cache=tmp_path)).hexdigest()
        for name, builder in cases
    ]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), json.dumps(cases)],
        capture_output=True,
        text=True,
        check=True,
    )
    digests, imported = json.loads(run.stdout.splitlines()[-1])
    assert imported == []
    assert digests == here


def test_the_report_is_the_same_with_remembered_answers(tmp_path, monkeypatch):
    class Mixed(nn.Module):
        def forward(self, x):
            # Which engines do not take.
            place = torch.tensor([0, 0])
            return torch.relu(x).index_put((place, place), x[0, 0], accumulate=True) * 2

    program = torch.export.export(Mixed(), (torch.ones(1, 1, 8, 8),))

    def report(**options):
        partitioner = TensorRTPartitioner(builder="reference", **options)
        return str(partitioner.explain(program))

    plain = report()
    assert report(cache=tmp_path) == plain
    monkeypatch.setattr(support_check, "_KNOWN", {})
    monkeypatch.setattr(
        "trt_et.engines.support_check._default_check", lambda *_: pytest.fail("asked again")
    )
    assert report(cache=tmp_path) == plain
    assert "it adds by several indices" in plain


@pytest.mark.long
def test_other_settings_and_foreign_converters_are_asked_again(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "trt_et.engines.support_check._default_check",
        lambda *_: lambda calls: asked.append(calls),
    )
    program = export("mlp")

    def explain(**options):
        asked.clear()
        TensorRTPartitioner(builder="reference", cache=tmp_path, **options).explain(program)
        return len(asked)

    first = explain()
    assert first > 3
    assert explain() == 0
    assert explain(torch_tensorrt_settings={"disable_tf32": True}) == first
    assert explain(torch_tensorrt_settings={"disable_tf32": True}) == 0
    monkeypatch.setattr("trt_et.engines.support_check.has_foreign_converters", lambda: True)
    assert explain() == explain() >= first


def test_a_converter_of_the_users_own_is_noticed():
    from torch_tensorrt.dynamo.conversion import _ConverterRegistry as registry

    assert not fingerprint.has_foreign_converters()
    table = registry.DYNAMO_ATEN_CONVERTERS
    target = torch.ops.aten.linalg_inv.default
    assert target not in table
    registry.dynamo_tensorrt_converter(target)(lambda *_: None)
    try:
        assert fingerprint.has_foreign_converters()
    finally:
        del table[target]
    assert not fingerprint.has_foreign_converters()


def signatures(model, *inputs, **options):
    program = torch.export.export(model, inputs, **options)
    return [signature(node) for node in program.graph.nodes if node.op == "call_function"]


def signature(node):
    return fragment_signature(fragment_of_call(node, {}))


class Times(nn.Module):
    def __init__(self, by, operator=torch.mul) -> None:
        super().__init__()
        self.by = by
        self.operator = operator

    def forward(self, x):
        return self.operator(x, x if self.by is None else self.by)


def test_whatever_a_validator_may_look_at_is_in_a_signature():
    x = torch.ones(2, 4)
    dim = torch.export.Dim
    found = [
        signatures(Times(2), x),
        signatures(Times(3), x),
        signatures(Times(2.0), x),
        signatures(Times(None), x),
        signatures(Times(2, torch.div), x),
        signatures(Times(2), x.half()),
        signatures(Times(2), torch.ones(4, 2)),
        signatures(Times(2), x, dynamic_shapes=({0: dim("a", max=8)},)),
        signatures(Times(2), x, dynamic_shapes=({0: dim("a", max=9)},)),
    ]
    assert len({each for (each,) in found}) == len(found)
    assert signatures(Times(2), x) == found[0]


def test_how_a_result_is_used_is_in_a_signature():
    graph = torch.fx.Graph()
    pooled = graph.call_function(torch.ops.aten.max_pool2d_with_indices.default, (1, [2, 2]))
    found = {signature(pooled)}
    for index in (0, 1):
        graph.call_function(operator.getitem, (pooled, index))
        found.add(signature(pooled))
    assert len(found) == 3


def test_what_an_argument_broadcasts_is_in_a_signature():
    found = set()
    for shape in ((4, 1), (1, 5)):
        graph = torch.fx.Graph()
        x, line = (graph.placeholder(name) for name in "xi")
        index = graph.call_function(torch.ops.aten.expand.default, (line, [4, 5]))
        line.meta["val"] = torch.zeros(shape)
        x.meta["val"] = index.meta["val"] = torch.zeros(4, 5)
        found.add(
            signature(graph.call_function(torch.ops.aten.scatter_add.default, (x, 0, index, x)))
        )
    assert len(found) == 2


def test_processes_add_to_each_others_answers(tmp_path):
    one, other = (SupportCache(tmp_path, "versions") for _ in range(2))
    one["a"] = None
    other["b"] = "no converter"
    one.save()
    other.save()
    both = SupportCache(tmp_path, "versions")
    assert (both["a"], both["b"]) == (None, "no converter")
    assert "a" not in SupportCache(tmp_path, "other versions")
