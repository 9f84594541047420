"""The private parts of Torch-TensorRT that we lean on, and what we guard against in them.

When a new release fails here, mend ``network.py`` and ``torch_tensorrt_patches.py`` in
``trt_et/conversion``.
"""

from __future__ import annotations

import inspect
import os

import pytest
import torch
from torch import nn

from tests.support.lowering import export, request
from tests.support.models import make
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.operator_networks import Function
from trt_et import TensorRTPartitioner
from trt_et.conversion import decompose, prepare, support
from trt_et.conversion.installed import installed_variant
from trt_et.engines import BuildOptions, BuildRequest
from trt_et.engines import serialize as engines
from trt_et.errors import BuilderError
from trt_et.graph.fragment import fragment_of_call
from trt_et.lowering.lower import lower_partition


@pytest.fixture(scope="module")
def interpreter_class():
    support.convertible_operators()
    from torch_tensorrt.dynamo.conversion._TRTInterpreter import TRTInterpreter

    return TRTInterpreter


def test_the_private_methods_are_there_with_the_signatures_we_call(interpreter_class):
    construct = inspect.signature(interpreter_class._construct_trt_network_def)
    assert list(construct.parameters) == ["self"]
    populate = inspect.signature(interpreter_class._populate_trt_builder_config)
    assert all(
        p.default is not inspect.Parameter.empty
        for name, p in populate.parameters.items()
        if name != "self"
    )
    output = inspect.signature(interpreter_class.output)
    assert list(output.parameters) == ["self", "target", "args", "kwargs"]


def test_run_is_still_what_needs_a_gpu(interpreter_class):
    # If run() stops deserializing, the private methods are no longer needed.
    assert "deserialize_cuda_engine" in inspect.getsource(interpreter_class.run)


@pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is patched where there is a GPU")
def test_nothing_stays_patched():
    support.convertible_operators()
    assert not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.cuda.current_device()
    assert os.path.isfile(__file__)  # noqa: PTH113
    assert os.path.isfile.__module__ == "genericpath"


def bindings(built):
    net = built.network
    inputs = [net.get_input(i) for i in range(net.num_inputs)]
    outputs = [net.get_output(i) for i in range(net.num_outputs)]
    return [(t.name, tuple(t.shape), str(t.dtype).rpartition(".")[2]) for t in inputs + outputs]


def test_the_network_has_the_bindings_of_the_partition_in_order():
    model, inputs = make("order")
    built = engines.build_network(request(model, *inputs))
    names = ("input0", "input1", "input2", "output0", "output1")
    assert bindings(built) == [(name, (3,), "FLOAT") for name in names]


@pytest.mark.parametrize("decomposed", [False, True])
def test_an_unconvertible_node_has_the_name_that_the_user_knows(decomposed, monkeypatch):
    class Unconvertible(nn.Module):
        def forward(self, x):
            return (torch.sinc(x) if decomposed else torch.linalg.inv(x)).relu()

    table = {torch.ops.aten.sinc.default: torch.linalg.inv} if decomposed else {}
    monkeypatch.setattr(prepare, "decomposed_operators", lambda: table)
    program = torch.export.export(Unconvertible(), (torch.eye(3),))
    operator = next(node for node in program.graph.nodes if node.op == "call_function")
    operator._rename("encoder_inverse")
    with pytest.raises(BuilderError, match=r"partition test at node encoder_inverse: "):
        engines.build_network(
            BuildRequest("test", lower_partition(program, "test"), 0, BuildOptions())
        )


def test_decompositions_count_as_support():
    program = export("mlp").run_decompositions({})
    partitioner = TensorRTPartitioner(builder="reference")
    assert torch.ops.aten.linear.default in partitioner.ops_to_not_decompose(program)[0]
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.ops.aten._log_softmax.default, (x, -1, False))
    mode = torch._subclasses.FakeTensorMode()
    x.meta["val"] = node.meta["val"] = mode.from_tensor(torch.randn(2, 3))
    assert torch.ops.aten._log_softmax.default in decompose.decomposed_operators()
    assert support.make_support_check(BuildOptions())(fragment_of_call(node, {})) is None


def test_a_validator_that_stumbles_is_a_refusal(monkeypatch):
    support.convertible_operators()  # Makes the module below importable.
    from torch_tensorrt.dynamo.conversion import DYNAMO_CONVERTERS

    def stumble(node):
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(DYNAMO_CONVERTERS, "get", stumble)
    program = torch.export.export(nn.ReLU(), (torch.eye(3),))
    (call,) = (node for node in program.graph.nodes if node.op == "call_function")
    refusal = support.make_support_check(BuildOptions())(fragment_of_call(call, {}))
    assert refusal.node == call.name
    assert "do not take these arguments" in refusal.reason


def read_again(cache: torch.Tensor, new: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.slice_scatter(cache, new, 2, 0, 2), cache * 2


def written_with_gaps(cache: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return torch.slice_scatter(cache, new, 2, 0, 4, 2)


@pytest.mark.skipif(installed_variant() is None, reason="Torch-TensorRT is not installed")
@pytest.mark.parametrize("function", [read_again, written_with_gaps])
def test_a_slice_of_an_input_is_no_cache_update_of_torch_tensorrts_own(function):
    """2.14's converter writes it into the input, whoever needs the old value, and without gaps."""
    inputs = (torch.randn(1, 2, 8, 4), torch.randn(1, 2, 2, 4))
    verdict = compare(request(Function(function), *inputs), *inputs)
    assert verdict.outcome == "equal", verdict
