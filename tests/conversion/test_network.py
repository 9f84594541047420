"""The private parts of Torch-TensorRT that we lean on, and what we guard against in them.

When a new release fails here, mend ``network.py`` and ``torch_tensorrt_patches.py`` in
``trt_et/conversion``.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.support.lowering import request
from tests.support.models import make
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.attention_networks import Case
from tests.support.programs.operator_networks import Function
from trt_et.conversion import rewriting, trial
from trt_et.conversion.installed import installed_variant
from trt_et.engine_program.make_program import make_engine_program
from trt_et.engines import BuildOptions, BuildRequest
from trt_et.engines.serialize import build_network
from trt_et.errors import BuilderError
from trt_et.graph.fragment import fragment_of_call


@pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is patched where there is a GPU")
def test_nothing_stays_patched():
    trial.convertible_operators()
    assert not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.cuda.current_device()
    assert os.path.isfile(__file__)  # noqa: PTH113
    assert os.path.isfile.__module__ == "genericpath"


def test_the_network_has_the_bindings_of_the_partition_in_order():
    model, inputs = make("order")
    net = build_network(request(model, *inputs)).network
    found = [net.get_input(i).name for i in range(3)] + [net.get_output(i).name for i in range(2)]
    assert found == ["input0", "input1", "input2", "output0", "output1"]


def test_equal_sizes_of_inputs_have_one_name():
    batch, length = Dim("batch", max=8), Dim("length", max=16)
    tokens, mask = torch.rand(2, 6, 4), torch.rand(2, 7, 1)
    sizes = [{0: batch, 1: length}, {0: batch, 1: length + 1}]
    net = build_network(Case(lambda x, y: x * y[:, 1:], (tokens, mask), sizes).request()).network
    names = [[net.get_input(i).get_dimension_name(dim) for dim in range(3)] for i in range(2)]
    assert names == [["size0", "size1", None], ["size0", "size2", None]]


@pytest.mark.parametrize("decomposed", [False, True])
def test_an_unconvertible_node_has_the_name_that_the_user_knows(decomposed, monkeypatch):
    unconvertible = torch.sinc if decomposed else torch.linalg.inv
    table = {torch.ops.aten.sinc.default: torch.linalg.inv} if decomposed else {}
    monkeypatch.setattr(rewriting, "decomposed_operators", lambda: table)
    program = torch.export.export(Function(lambda x: unconvertible(x).relu()), (torch.eye(3),))
    operator = next(node for node in program.graph.nodes if node.op == "call_function")
    operator._rename("encoder_inverse")
    with pytest.raises(BuilderError, match=r"partition test at node encoder_inverse: "):
        build_network(BuildRequest("test", make_engine_program(program, "test"), 0, BuildOptions()))


def test_a_validator_that_stumbles_is_a_refusal(monkeypatch):
    trial.convertible_operators()  # Makes the module below importable.
    from torch_tensorrt.dynamo.conversion import DYNAMO_CONVERTERS

    def stumble(node):
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(DYNAMO_CONVERTERS, "get", stumble)
    program = torch.export.export(nn.ReLU(), (torch.eye(3),))
    (call,) = (node for node in program.graph.nodes if node.op == "call_function")
    refusal = trial.try_as_network(BuildOptions())(fragment_of_call(call, {}))
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
