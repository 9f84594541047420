"""Splits and recurrent layers of programs whose first sizes are dynamic."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge, to_edge_transform_and_lower
from torch import nn
from torch.export import Dim

from tests.support.lowering import blobs, lower
from tests.support.models import Unary
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check
from trt_et import TensorRTPartitioner
from trt_et.engine_info import decode_blob


def write_in_place(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y.chunk(2, 2)[0].mul_(2)
    return y


class Recurrent(nn.Module):
    """Two steps: each is a dozen operators, for which torch computes with symbols."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x[:, :2])[0].sum(1)


class InBranches(nn.Module):
    def forward(self, x):
        return torch.cond(
            x.sum() > 0,
            lambda x: x.chunk(2, 2)[1] * 2,
            lambda x: torch.sin(x.split([4, 4], -1)[0]),
            (x,),
        )


CASES = {
    "split": Unary(lambda x: x.split(3, 2)[-1] * 2),
    "split with sizes": Unary(lambda x: x.split([1, 5, 2], -1)[1] * 2),
    "chunk": Unary(lambda x: x.chunk(2, -1)[0].sigmoid() * x.chunk(2, -1)[1]),
    "pieces of which one is returned": Unary(lambda x: x.tensor_split([2, 5], 2)),
    "unbind": Unary(lambda x: torch.stack(x.unbind(1)[::-1]) * 2),
    "piece written in place": Unary(write_in_place),
    "lstm": Recurrent(nn.LSTM(8, 4, batch_first=True, bidirectional=True)),
    "gru": Recurrent(nn.GRU(8, 4, batch_first=True)),
    "rnn": Recurrent(nn.RNN(8, 4, batch_first=True)),
    "branches": InBranches(),
}


def exported(name: str) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(
            copy.deepcopy(CASES[name]),
            (torch.randn(3, 5, 8),),
            dynamic_shapes=({0: Dim("batch", min=1, max=8)},),
        )


@pytest.mark.parametrize("name", sampled(CASES, 8))
def test_any_batch_runs(name):
    program = exported(name)
    before = str(program)
    pte = lower(program)
    assert str(program) == before
    sizes = [b.shape[:1] for blob in blobs(pte) for b in decode_blob(blob).info.inputs]
    assert set(sizes) <= {(-1,), ()}
    check(pte, CASES[name], *((torch.randn(size, 5, 8),) for size in (3, 1, 8, 2)))


@pytest.mark.long
def test_an_engine_for_any_batch_is_built():
    (blob,) = blobs(lower(exported("lstm"), builder="tensorrt_rtx"))
    assert decode_blob(blob).info.inputs[0].max_shape == (8, 5, 8)


def test_so_it_is_beside_another_partitioner():
    partitioners = [XnnpackPartitioner(), TensorRTPartitioner(builder="reference")]
    manager = to_edge_transform_and_lower(exported("chunk"), partitioner=partitioners)
    program = manager.exported_program()
    (x,) = (node for node in program.graph.nodes if node.name == "x")
    assert isinstance(x.meta["val"].shape[0], torch.SymInt)


def test_a_size_that_was_lost_before_is_reported(caplog):
    edge = to_edge(exported("chunk"))
    with caplog.at_level(logging.WARNING, logger="trt_et"):
        edge.to_backend(TensorRTPartitioner(builder="reference"))
    assert "made the number 3 of a dynamic size" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="trt_et"):
        to_edge_transform_and_lower(
            exported("chunk"), partitioner=[TensorRTPartitioner(builder="reference")]
        )
    assert "dynamic size" not in caplog.text
