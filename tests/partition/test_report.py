"""The plan without the building."""

from __future__ import annotations

import pytest
import torch

from tests.support.lowering import export, export_with_batch, lower
from trt_et import TensorRTPartitioner


class Unbuilt:
    name = "reference"

    def build(self, request):
        raise AssertionError("explain() builds nothing")


@pytest.mark.parametrize("name", ["vit", "split"])
def test_the_plan_is_what_lowering_does(name):
    program = export(name)
    planned = TensorRTPartitioner(builder=Unbuilt(), excluded_ops=[torch.ops.aten.cumsum]).explain(
        program
    )
    partitioner = TensorRTPartitioner(builder="reference", excluded_ops=[torch.ops.aten.cumsum])
    lower(program, partitioner=partitioner)
    assert planned == partitioner.report


def test_boundaries_and_weights_are_counted_in_bytes():
    report = TensorRTPartitioner(builder="reference").explain(export("mlp"))
    (partition,) = report.partitions
    assert [(t.dtype, t.shape, t.nbytes) for t in partition.inputs] == [
        (torch.float32, (4, 16), 4 * 16 * 4)
    ]
    assert [(t.shape, t.nbytes) for t in partition.outputs] == [((4, 4), 4 * 4 * 4)]
    weights = (16 * 32 + 32) + 2 * 32 + (32 * 32 + 32) + (32 * 4 + 4)
    assert partition.constant_bytes == weights * 4
    assert "tensorrt_0: 8 operators, 7,184 bytes of weights" in str(report)


def test_a_dynamic_boundary_counts_at_its_largest():
    report = TensorRTPartitioner(builder="reference").explain(export_with_batch("mlp"))
    assert report.partitions[0].inputs[0].shape == (8, 16)


def test_reasons_are_in_the_text():
    text = str(
        TensorRTPartitioner(builder="reference", excluded_ops=[torch.ops.aten.cumsum]).explain(
            export("split")
        )
    )
    assert "left out: aten_cumsum_default (aten::cumsum.default): its operator is excluded" in text
    assert text.count("tensorrt_") == 2
