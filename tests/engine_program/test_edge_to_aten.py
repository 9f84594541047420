"""The way back from the Edge dialect to plain ATen keeps every value."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import to_edge
from torch.fx import GraphModule

from tests.support.lowering import reference
from tests.support.models import Function, make
from trt_et import TensorRTPartitioner
from trt_et.engine_program.edge_to_aten import to_aten
from trt_et.engine_program.make_program import make_engine_program

FUNCTIONS = {
    "views": lambda x: x.permute(2, 0, 1).reshape(4, -1).unsqueeze(0)[..., 1:].squeeze(0),
    "transpose": lambda x: x.transpose(-1, 0),
    "split": lambda x: torch.cat([p * i for i, p in enumerate(x.split([1, 3], dim=2))], 2),
    "unbind": lambda x: sum(x.unbind(0)),
    "expand": lambda x: x[:1].expand(2, 3, 4),
    "dtypes": lambda x: x.half().float() + x.int() + x.bool(),
    "bool": lambda x: (~((x > 0) & (x < 1)) | (x > 2)) ^ (x == 0),
    "bits": lambda x: (x * 10).int() & 3 | 4,
    "full": lambda x: torch.full_like(x, 2.5) + torch.zeros_like(x) + x.new_ones(4),
    "diagonal": lambda x: x[0].diagonal(),
    "clone": lambda x: x.clone(memory_format=torch.contiguous_format).detach(),
    "select": lambda x: x.select(1, -1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_values(name):
    torch.manual_seed(0)
    model, x = Function(FUNCTIONS[name]), torch.randn(2, 3, 4)
    edge = to_edge(torch.export.export(model, (x,))).exported_program()
    program = make_engine_program(edge, "test")
    graph = program.exported.graph
    assert not any("edge" in str(type(node.target)) for node in graph.nodes)
    assert not any("_copy." in str(n.target).replace("_to_copy", "") for n in graph.nodes)
    module = GraphModule(torch.nn.Module(), graph)
    constants = program.constants
    arguments = [constants.get(node.name, x) for node in graph.nodes if node.op == "placeholder"]
    (result,) = module(*arguments)
    torch.testing.assert_close(result, model(x))


def test_the_source_graph_is_not_changed():
    edge = to_edge(torch.export.export(*make("cnn"))).exported_program()
    before = str(edge.graph)
    to_aten(edge.graph)
    make_engine_program(edge, "test")
    assert str(edge.graph) == before


@pytest.mark.parametrize(
    "sort", [lambda x: x.sort().values, lambda x: x.sort(dim=0, descending=True).indices]
)
def test_sorting_is_supported_whatever_arguments_are_omitted(sort):
    program = torch.export.export(Function(sort), (torch.randn(3, 4),))
    partitioner = reference()
    to_edge(program).to_backend(partitioner)  # Without the passes, which replace it.
    (partition,) = partitioner.report.partitions
    assert "aten::sort.default" in partition.operators


@pytest.mark.parametrize("builder", ["reference", "onnx"])
@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extremes_of_all_numbers_are_supported_by_each_builder(builder, name):
    find = getattr(torch.ops.aten, name).default
    model = Function(lambda x: (find(x * 2), find(x * 3, [], True)))
    program = torch.export.export(model, (torch.randn(3, 4),))
    assert not TensorRTPartitioner(builder=builder).explain(program).not_delegated
