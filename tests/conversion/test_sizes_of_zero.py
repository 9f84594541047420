"""A dynamic size may be 0: nothing is left of an image, and nothing is computed."""

from __future__ import annotations

import torch
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torch.export import Dim
from torch.nn import functional as F

from tests.support.models import Function
from tests.support.network_evaluator.comparison import ComparingBuilder, Verdict
from trt_et import TensorRTPartitioner


def test_a_network_takes_tensors_without_elements():
    def halved(x):
        # Of one row, half a row is none. TensorRT broadcasts its weights by computed shapes.
        return F.interpolate(x, scale_factor=(0.5, 1.5), mode="bicubic")

    sizes = {dim: Dim.AUTO(min=1, max=9) for dim in range(4)}
    program = torch.export.export(
        Function(halved), (torch.rand(5, 5, 5, 5),), dynamic_shapes=((sizes,),)
    )
    verdicts: list[Verdict] = []
    partitioner = TensorRTPartitioner(builder=ComparingBuilder(verdicts))
    # ExecuTorch's verifier does not know the size in float that torch computes here.
    config = EdgeCompileConfig(_check_ir_validity=False)
    to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=config)
    assert {verdict.outcome for verdict in verdicts} == {"equal"}, verdicts
