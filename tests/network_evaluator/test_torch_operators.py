"""Torch's own samples of its operators: whatever goes into an engine computes what eager does.

In every dtype that TensorRT has; Torch-TensorRT's converters are wrong in some. Nothing is built:
the networks are evaluated on the CPU. ``TRT_ET_OPERATORS=all`` takes all of torch's operators, two
dozen minutes a dtype on one core; ``TRT_ET_OPERATORS="where add"`` takes these.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch.utils import _pytree as pytree

from tests.support.network_evaluator.comparison import ComparingBuilder, Verdict
from tests.support.torch_samples import op_db
from trt_et import TensorRTPartitioner
from trt_et.errors import TrtEtError

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
DTYPES = (*FLOATS, torch.int64, torch.int32, torch.bool)
# The outputs that have more than one right answer: the positions of equal numbers.
OF_POSITIONS = ("topk", "sort", "kthvalue", "median", "nanmedian", "mode")
POSITIONS = {"argsort": 0, **dict.fromkeys(OF_POSITIONS, 1)}
# tests/conversion/test_equal.py has others.
IN_CI = {
    *("add", "atan2", "clamp", "div", "gather", "index_put", "max", "native_layer_norm"),
    *("nn.functional.avg_pool2d", "nn.functional.conv1d", "softmax", "sum", "where"),
    "nn.functional.scaled_dot_product_attention",
}
# Their kernels differ from those of float32 and int64 in precision and range only.
NOT_IN_CI = (torch.float16, torch.int32)
# Of those in CI, what no engine has: float64, and integers that are convolved or averaged.
STAYS_OUT = {
    *(("softmax", "with_dtype", dtype) for dtype in DTYPES),
    *((f"nn.functional.{name}", "", torch.int64) for name in ("avg_pool2d", "conv1d")),
}
_chosen = os.environ.get("TRT_ET_OPERATORS", "").split()
NAMES = None if _chosen == ["all"] else set(_chosen) or IN_CI
SAMPLES = 1 if NAMES is IN_CI else 3


class Sample(nn.Module):
    """One call of an operator; its tensors are the inputs, all else is fixed."""

    def __init__(self, operator: Any, flat: list[Any], spec: pytree.TreeSpec) -> None:
        super().__init__()
        self.operator = operator
        self.flat = flat
        self.spec = spec
        self.positions = [i for i, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor)]
        self.inputs = tuple(flat[index].detach().clone() for index in self.positions)

    def forward(self, *tensors):
        flat = list(self.flat)
        for index, tensor in zip(self.positions, tensors, strict=True):
            flat[index] = tensor
        first, args, kwargs = pytree.tree_unflatten(flat, self.spec)
        leaves = pytree.tree_leaves(self.operator(first, *args, **kwargs))
        return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


def samples(info: Any, dtype: torch.dtype) -> Iterator[Sample]:
    """Some of torch's samples, from the first to the last."""
    every = list(islice(info.sample_inputs("cpu", dtype, requires_grad=False), 60))
    for sample in every[:: max(1, len(every) // SAMPLES)]:
        flat, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = [leaf for leaf in flat if isinstance(leaf, torch.Tensor)]
        if tensors and all(tensor.layout == torch.strided for tensor in tensors):
            yield Sample(info.op, flat, spec)


def judged(sample: Sample) -> list[Verdict]:
    """What became of each partition; none where torch or ExecuTorch alone refuse the program."""
    try:
        program = torch.export.export(sample, sample.inputs)
    except Exception:
        return []
    verdicts: list[Verdict] = []
    partitioner = TensorRTPartitioner(builder=ComparingBuilder(verdicts))
    try:
        to_edge_transform_and_lower(program, partitioner=[partitioner])
    except TrtEtError:
        raise
    except Exception:
        if lowers_without_a_backend(program):
            raise
        return []
    return verdicts


def lowers_without_a_backend(program: torch.export.ExportedProgram) -> bool:
    try:
        to_edge_transform_and_lower(program)
    except Exception:
        return False
    return True


CASES = [
    pytest.param(
        info, dtype, id=f"{info.name}-{info.variant_test_name}-{dtype}".replace("torch.", "")
    )
    for info in op_db
    # Torch ends the process where it is given another index than its forward pass found.
    if "backward" not in info.name and (NAMES is None or info.name in NAMES)
    for dtype in DTYPES
    if info.supports_dtype(dtype, "cpu")
    and (
        NAMES is not IN_CI
        or (dtype not in NOT_IN_CI and (info.name, info.variant_test_name, dtype) not in STAYS_OUT)
    )
]


@pytest.mark.parametrize(("info", "dtype"), CASES)
def test_the_networks_of_an_operator_equal_eager(info, dtype):
    positions = f"output {POSITIONS.get(info.name)}:"
    number = 0
    for sample in samples(info, dtype):
        with torch.no_grad():
            found = judged(sample)
        number += len(found)
        for verdict in found:
            shapes = [tuple(tensor.shape) for tensor in sample.inputs]
            assert verdict.outcome != "bad network", (shapes, verdict)
            right = verdict.outcome != "different" or positions in verdict.why
            assert right, (shapes, verdict)
    assert number or NAMES is not IN_CI, "nothing of it goes into an engine any more"
    if not number:
        pytest.skip("no call of its samples goes into an engine")
