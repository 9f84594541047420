"""What a caller reads in the report or in the exported program can be excluded by that name."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import to_edge, to_edge_transform_and_lower
from torch import nn

from tests.support.lowering import reference
from trt_et import OptionError, TensorRTPartitioner
from trt_et.engines import EngineBuilder
from trt_et.graph.subgraphs import subgraphs
from trt_et.partition.node_choice import NodeChoice


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 1)
        self.inner = nn.Linear(4, 4)
        self.outer = nn.Linear(4, 4)

    def forward(self, x):
        y = torch.cond(x.sum() > 0, nn.functional.silu, lambda y: (y * 2).relu(), (x,))
        y = self.convolution(y).relu_()
        return self.outer(self.inner(y + y.tanh()).softmax(-1).flatten(1).reshape(1, 4, -1, 4))


@pytest.fixture(scope="module")
def program():
    return torch.export.export(Model().eval(), (torch.randn(1, 3, 4, 4),))


@pytest.fixture(scope="module")
def edge(program):
    return to_edge(program).exported_program()


def excluded(partitioner):
    return [op for _, op, why in partitioner.report.not_delegated if "excluded by" in why]


CASES = {
    torch.ops.aten.conv2d: ["aten_convolution_default"],
    torch.ops.aten.relu.default: ["aten_relu_default", "cond/false/aten_relu_default"],
    (lambda node: "tanh" in node.name): ["aten_tanh_default"],
    "aten.conv2d": ["aten_convolution_default"],
    "conv2d": ["aten_convolution_default"],
    "aten.convolution.default": ["aten_convolution_default"],
    "aten_convolution_default": ["aten_convolution_default"],
    "aten.softmax": ["aten__softmax_default"],
    "aten.softmax.int": ["aten__softmax_default"],
    "aten::_softmax.default": ["aten__softmax_default"],
    "aten.relu_": ["aten_relu_default"],
    "relu_": ["aten_relu_default"],
    "aten.flatten.using_ints": ["aten_view_copy_default_2"],
    "aten.reshape": ["aten_view_copy_default_3"],
    "aten.relu": ["aten_relu_default", "cond/false/aten_relu_default"],
    "silu": ["cond/true/aten_sigmoid_default", "cond/true/aten_mul_tensor"],
    "cond/true/silu": ["cond/true/aten_sigmoid_default", "cond/true/aten_mul_tensor"],
    "cond/false": ["cond/false/aten_mul_tensor", "cond/false/aten_relu_default"],
}


@pytest.mark.parametrize("item", CASES)
def test_what_the_exported_or_the_edge_program_calls_a_node_is_excluded(edge, item):
    ops = NodeChoice([item])
    ops.mark(edge)
    found = [
        subgraph.name_of(node)
        for subgraph in subgraphs(edge.graph_module)
        for node in subgraph.graph.nodes
        if node.op == "call_function" and ops.reason(node) is not None
    ]
    assert [each for each in found if "dim_order" not in each] == CASES[item]


@pytest.mark.parametrize(("name", "count"), [("aten::linear.default", 2), ("linear", 1)])
def test_an_operator_that_would_be_preserved_is_decomposed_and_excluded(program, name, count):
    partitioner = reference(excluded_ops=[name])
    partitioner.explain(program)
    assert excluded(partitioner).count("aten::addmm.default") == count


def test_every_name_that_the_report_prints_is_excluded(edge):
    for subgraph in subgraphs(edge.graph_module):
        for node in subgraph.graph.nodes:
            if node.op == "call_function" and "aten" in node.name:
                name = subgraph.name_of(node)
                ops = NodeChoice([name])
                ops.mark(edge)
                assert ops.reason(node) == "it is excluded by the caller"


class Never(EngineBuilder):
    name = "never"

    def build(self, request):
        raise AssertionError("an engine was built")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("linear_7", "linear_1"),
        ("aten_convolutoin_default", "aten_convolution_default"),
        ("aten.conv1d", "aten.conv2d"),
        ("conv3d", "conv2d"),
    ],
)
def test_a_name_that_matches_nothing_is_an_error_before_anything_is_built(program, name, near):
    partitioner = TensorRTPartitioner(builder=Never(), excluded_ops=[name])
    with pytest.raises(OptionError, match=rf"'{name}'.*near it: .*{near}"):
        to_edge_transform_and_lower(program, partitioner=[partitioner])


def test_an_operator_object_need_not_be_called(program):
    partitioner = reference(excluded_ops=[torch.ops.aten.conv1d, torch.ops.aten.cumsum.default])
    partitioner.explain(program)
    assert excluded(partitioner) == []


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("aten.mull", r"near it: .*aten\.mul"),
        ("aten.conv2dd.default", r"near it: .*aten\.conv2d"),
        ("aten.mul.Dimname", r"near it: .*aten\.mul"),
        (nn.GELU, r"holds <class .*GELU'>; expected an operator"),
    ],
)
def test_what_is_no_operator_node_or_function_is_an_error(item, message):
    with pytest.raises(OptionError, match=message):
        reference(excluded_ops=[item])


def test_a_function_that_fails_on_a_node_is_named(program):
    with pytest.raises(OptionError, match=r"the function relu fails on node .*ops\.aten\.mul"):
        reference(excluded_ops=[torch.relu]).explain(program)


def test_a_name_counts_for_all_methods_that_are_lowered_together():
    first = torch.export.export(nn.Sequential(nn.ReLU()), (torch.randn(3),))
    second = torch.export.export(nn.Sequential(nn.Tanh(), nn.Sigmoid()), (torch.randn(3),))
    partitioner = reference(excluded_ops=["relu", "aten.relu", "aten_tanh_default"])
    to_edge_transform_and_lower({"one": first, "two": second}, partitioner=[partitioner])
    assert excluded(partitioner) == ["aten::tanh.default"]


def test_names_of_the_exported_program_count_where_edge_is_made_first(program):
    partitioner = reference(excluded_ops=["conv2d"])
    to_edge(program).to_backend(partitioner)
    assert excluded(partitioner) == ["aten::convolution.default"]


@pytest.mark.parametrize("strict", [False, True])
def test_names_of_strictly_exported_programs_are_excluded(strict):
    class Named(nn.Module):
        def forward(self, x):
            y = x + 1  # Dynamo's graph calls this node y, the exported program add.
            return y.tanh() * y

    program = torch.export.export(Named(), (torch.randn(3),), strict=strict)
    partitioner = reference(excluded_ops=["add"])
    partitioner.explain(program)
    assert "aten::add.Tensor" in excluded(partitioner)
    with pytest.raises(OptionError, match="'y', which matches no"):
        reference(excluded_ops=["y"]).explain(program)


def test_a_call_that_a_pass_replaces_is_excluded_by_its_name():
    """The cache gets another shape, and the write to it another call."""

    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(2, 8, 4))

        def forward(self, position, rows):
            return self.cache.index_copy_(1, position, rows) * 2

    with torch.no_grad():
        inputs = (torch.tensor([3]), torch.randn(2, 1, 4))
        program = torch.export.export(Cache(), inputs)
    partitioner = reference(excluded_ops=["index_copy_"])
    partitioner.explain(program)
    assert excluded(partitioner) == ["aten::index_put.default"]
