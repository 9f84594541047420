"""How often an operator's support is computed, and Torch-TensorRT patched for it."""

from __future__ import annotations

import pytest
import torch

from tests.support.lowering import export, lower, reference
from trt_et.conversion.installed import installed_variant
from trt_et.partition import support_check
from trt_et.partition.ops_to_preserve import OPS_TO_PRESERVE


def test_support_is_asked_once_for_each_call_of_a_graph(monkeypatch):
    asked = []

    def counting(*arguments):
        check = make_support_check(*arguments)

        def count(node):
            asked.append(node.name)
            return check(node)

        return count

    make_support_check = support_check.make_support_check
    monkeypatch.setattr(support_check, "make_support_check", counting)
    program = export("vit")
    partitioner = reference(cache=False)
    lower(program, partitioner=partitioner)
    (partition,) = partitioner.report.partitions
    preserved = [node.name for node in program.graph.nodes if node.target in OPS_TO_PRESERVE]
    edge = [name for name in partition.nodes if not name.startswith("getitem")]
    assert len(preserved) > 2
    # Before a program is decomposed, only the operators that may be preserved are asked for.
    assert asked == preserved + edge


@pytest.mark.skipif(installed_variant() is None, reason="no Torch-TensorRT is installed")
@pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is patched beside a GPU")
def test_torch_tensorrt_is_patched_once_for_each_graph_and_not_afterwards(monkeypatch):
    from trt_et.conversion import torch_tensorrt_patches

    entered = []
    answers = torch_tensorrt_patches._answers

    def counting():
        entered.append(1)
        return answers()

    plain = torch.cuda.get_device_capability
    reference().explain(export("mlp"))
    monkeypatch.setattr(torch_tensorrt_patches, "_answers", counting)
    reference().explain(export("mlp"))
    small = len(entered)
    reference().explain(export("vit"))
    assert len(entered) - small == small <= 3
    assert torch.cuda.get_device_capability is plain
