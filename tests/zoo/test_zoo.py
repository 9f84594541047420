"""Whole models, as people bring them: right on simulated GPUs, and built by TensorRT-RTX.

CI takes the families that every release must know, and those that once found a defect;
``make zoo`` takes all.
"""

from __future__ import annotations

import copy
import os

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torch.utils import _pytree as pytree

import trt_et.runtime
from tests.zoo import pretrained, written
from tests.zoo.case import Case
from trt_et import TensorRTPartitioner
from trt_et.builders.factory import installed_flavour
from trt_et.inspection import inspect_program

MODELS = {**pretrained.MODELS, **written.MODELS}
IN_CI = (
    "bert",
    "vit",
    "llama_static_cache",
    "llama_past",
    "whisper_encoder",
    "clip",
    "clip_text",
    "clip_vision",
    "resnet50",
    "unet",
    "lstm",
    "lstm_cell",
    "mixture_of_experts",
    # Constants of hardsigmoid took the place of hardswish's.
    "mobilenet_v3_like",
    # Three dimensions: ExecuTorch's CPU kernels have two.
    "conv3d",
    # Sizes, a cumulative sum and partitions around it.
    "gpt2",
)
NAMES = list(MODELS) if os.environ.get("TRT_ET_ZOO") == "all" else IN_CI


def make(name: str) -> Case:
    torch.manual_seed(0)
    case = MODELS[name]()
    case.model.eval().requires_grad_(False)
    return case


def lower(case: Case, builder: str) -> tuple[bytes, TensorRTPartitioner]:
    partitioner = TensorRTPartitioner(builder=builder)
    with torch.no_grad():
        program = torch.export.export(
            case.model, case.inputs, dynamic_shapes=case.dynamic, strict=case.strict
        )
        manager = to_edge_transform_and_lower(program, partitioner=[partitioner])
        return bytes(manager.to_executorch().buffer), partitioner


def check_plan(case: Case, pte: bytes, partitioner: TensorRTPartitioner) -> None:
    (method,) = inspect_program(pte)
    assert not any(delegate.problem for delegate in method.delegates)
    assert len(method.delegates) <= case.partitions, str(partitioner.report)
    left = {operator for _, operator, reason in partitioner.report.left_out if "size" not in reason}
    assert left <= set(case.left), str(partitioner.report)


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_like_eager_on_a_simulated_gpu(name):
    from executorch.runtime import Runtime

    trt_et.runtime.load(cuda="simulated:1")
    case = make(name)
    # Exporting and calling change buffers; what was exported began where this copy does.
    eager = copy.deepcopy(case.model)
    pte, partitioner = lower(case, "reference")
    check_plan(case, pte, partitioner)
    method = Runtime.get().load_program(pte).load_method("forward")
    for call in (case.inputs, *case.calls):
        found = method.execute(pytree.tree_leaves(call))
        with torch.no_grad():
            expected = pytree.tree_leaves(eager(*call))
        for have, want in zip(found, expected, strict=True):
            torch.testing.assert_close(have, want, atol=case.atol, rtol=case.atol)


@pytest.mark.skipif(
    installed_flavour() != "tensorrt_rtx", reason="torch-tensorrt-rtx is not installed"
)
@pytest.mark.parametrize("name", NAMES)
def test_tensorrt_rtx_builds_it(name):
    case = make(name)
    pte, partitioner = lower(case, "tensorrt_rtx")
    check_plan(case, pte, partitioner)
