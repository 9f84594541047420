"""How often an operator's support is computed, and Torch-TensorRT patched for it."""

from __future__ import annotations

import pytest
import torch

from tests.support.lowering import export, lower, reference
from trt_et import support_check
from trt_et.conversion.installed import installed_variant
from trt_et.engines.support_cache import fragment_signature


def test_each_kind_of_call_is_converted_once_and_then_the_whole_partition(monkeypatch):
    asked = []

    def counting(*arguments):
        check = make_support_check(*arguments)

        def count(fragment):
            asked.append(fragment)
            return check(fragment)

        return count

    make_support_check = support_check.make_support_check
    monkeypatch.setattr(support_check, "_KNOWN", {})
    monkeypatch.setattr(support_check, "make_support_check", counting)
    program = export("vit")
    partitioner = reference(cache=False)
    lower(program, partitioner=partitioner)
    (partition,) = partitioner.report.partitions
    signatures = [fragment_signature(fragment) for fragment in asked]
    assert len(set(signatures)) == len(signatures) < len(partition.nodes)
    assert len(asked[-1].calls) == len(partition.nodes)
    asked.clear()
    lower(export("vit"), partitioner=reference(cache=False))
    assert asked == []


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
