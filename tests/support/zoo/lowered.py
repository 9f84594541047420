"""The zoo's models by name, lowered, and what is checked of every plan."""

from __future__ import annotations

import copy

import torch

from tests.support.lowering import lower as lower_program
from tests.support.sampled import chosen
from tests.support.simulated_gpus import check
from tests.support.zoo import sequences, transformers_models, vision
from tests.support.zoo.case import Case
from trt_et import TensorRTPartitioner
from trt_et.inspection import inspect_program

MODELS = {**transformers_models.MODELS, **vision.MODELS, **sequences.MODELS}
RUN_IN_CI = (
    "unet",
    # Constants of hardsigmoid took the place of hardswish's.
    "mobilenet_v3_like",
    # Three dimensions: ExecuTorch's CPU kernels have two.
    "conv3d",
)
BUILT_IN_CI = ("lstm_cell", "mixture_of_experts")
TO_RUN = chosen(MODELS, *RUN_IN_CI)
TO_BUILD = chosen(MODELS, *BUILT_IN_CI)


def make(name: str) -> Case:
    torch.manual_seed(0)
    case = MODELS[name]()
    case.model.eval().requires_grad_(False)
    for module in case.model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.9, 1.1)
    return case


def lower(case: Case, builder: str) -> tuple[bytes, TensorRTPartitioner]:
    partitioner = TensorRTPartitioner(builder=builder)
    options = {"dynamic_shapes": case.dynamic, "strict": case.strict}
    with torch.no_grad():
        program = torch.export.export(case.model, case.inputs, **options)
        return lower_program(program, partitioner=partitioner), partitioner


def check_built(case: Case, builder: str = "tensorrt_rtx") -> bytes:
    pte, partitioner = lower(case, builder)
    (method,) = inspect_program(pte)
    assert not any(delegate.problem for delegate in method.delegates)
    assert len(method.delegates) <= case.partitions, str(partitioner.report)
    left = {
        operator for _, operator, reason in partitioner.report.not_delegated if "size" not in reason
    }
    assert left <= set(case.left), str(partitioner.report)
    return pte


def check_run(case: Case) -> None:
    # Exporting and calling change buffers; what was exported began where this copy does.
    eager = copy.deepcopy(case.model)
    compare(case, eager, check_built(case, "reference"))


def compare(case: Case, eager: torch.nn.Module, pte: bytes) -> float:
    """Run a program with all inputs, and return how far from eager it is: within the tolerance."""
    return check(pte, eager, case.inputs, *case.calls, atol=case.atol, rtol=case.atol)
