"""A call that no engine takes and that ExecuTorch has no kernel for is told at the export."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import trt_et.runtime
from tests.support.lowering import lower, reference
from tests.support.models import Function
from tests.support.simulated_gpus import load_runtime
from trt_et.errors import PartitionError, RunError

X = torch.randn(1, 2, 4, 4, 4)
POOL = "aten::max_pool3d_with_indices"


class Pooled(torch.nn.Module):
    def forward(self, x):
        return F.max_pool3d(x * 2, 2, return_indices=True)


def test_the_export_names_the_operator_the_line_and_the_cure(caplog):
    partitioner = reference()
    pte = lower(torch.export.export(Pooled(), (X,)), partitioner=partitioner)
    (message,) = (m for m in caplog.messages if "nothing runs it" in m)
    report = partitioner.report
    assert f"({POOL}.default)" in message
    assert f"ExecuTorch has no kernel {POOL}.out for it; leave out return_indices=True" in message
    assert "test_missing_kernels.py:" in message
    assert "in forward: return F.max_pool3d(x * 2, 2, return_indices=True)" in message
    (name,) = report.without_kernel
    assert name == "aten_max_pool3d_with_indices_default"
    assert "leave out return_indices=True" in str(report)
    load_runtime()
    with pytest.raises(RunError, match=f"no kernel is registered for {POOL}.out"):
        trt_et.runtime.load_program(pte).load_method("forward")


def test_full_graph_refuses_it_with_the_cure():
    program = torch.export.export(Pooled(), (X,))
    with pytest.raises(PartitionError, match="leave out return_indices=True"):
        lower(program, full_graph=True)


def test_operators_of_the_model_itself_need_a_kernel():
    @torch.library.custom_op("trt_et_tests::twist", mutates_args=())
    def twist(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twist.register_fake(torch.empty_like)
    report = reference().explain(torch.export.export(Function(lambda x: twist(x) + 1), (X,)))
    ((_, _, reason),) = report.not_delegated
    assert "no kernel trt_et_tests::twist (it has no out variant)" in reason
    assert "register a kernel of your own" in reason


def test_calls_with_a_kernel_are_not_named():
    model = Function(lambda x: (x.double().cumsum(0), x.nonzero(), x.sort(1)[0], x.clone()))
    program = torch.export.export(model, (X,))
    report = reference(excluded_ops=["aten.topk", "aten.clone"]).explain(program)
    assert len(report.tensors_not_delegated) > 4
    assert not report.without_kernel
    assert "no kernel" not in str(report)
