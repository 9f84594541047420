"""A partition's builder, device and options reach the build, or the export is an error."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult

from tests.support.models import Function
from tests.support.sampled import sampled
from trt_et import PartitionError, TensorRTPartitioner
from trt_et.engines import EngineBuilder
from trt_et.engines.reference.builder import ReferenceBuilder


class Counting(EngineBuilder):
    """Builds as the reference builder does, and cannot be copied."""

    name = "reference"

    def __init__(self) -> None:
        self.device_ids = []

    def __deepcopy__(self, memo):
        raise TypeError("this builder cannot be copied")

    def build(self, request):
        self.device_ids.append(request.device_id)
        return ReferenceBuilder().build(request)


class Rewriting(Partitioner):
    """Hands on what TensorRTPartitioner decided, with other lists of compile specs."""

    def __init__(self, inner: TensorRTPartitioner, rewrite) -> None:
        super().__init__()
        self.inner = inner
        self.rewrite = rewrite

    def partition(self, exported_program):
        result = self.inner.partition(exported_program)
        tags = {
            tag: DelegationSpec(spec.backend_id, self.rewrite(spec.compile_specs))
            for tag, spec in result.partition_tags.items()
        }
        return PartitionResult(result.tagged_exported_program, tags)

    def ops_to_not_decompose(self, ep):
        return self.inner.ops_to_not_decompose(ep)


MODEL = Function(lambda x: torch.cumsum(x * 2, 0).relu())
OPTIONS = {"device": "cuda:3", "excluded_ops": [torch.ops.aten.cumsum.default]}


def export():
    return torch.export.export(MODEL, (torch.randn(3),))


@pytest.mark.parametrize("copied", sampled([copy.copy, copy.deepcopy, lambda specs: specs.copy()]))
def test_a_copied_list_of_specs_keeps_its_plan(copied):
    builder = Counting()
    inner = TensorRTPartitioner([CompileSpec("mine", b"1")], builder=builder, **OPTIONS)
    plain = to_edge_transform_and_lower(export(), partitioner=[inner]).to_executorch().buffer
    rewriting = Rewriting(inner, copied)
    program = to_edge_transform_and_lower(export(), partitioner=[rewriting]).to_executorch()
    assert builder.device_ids == [3] * 4
    assert program.buffer == plain


@pytest.mark.parametrize(
    "rewrite",
    [
        list,
        lambda specs: [*specs, CompileSpec("more", b"")],
        lambda specs: pickle.loads(pickle.dumps(specs)),
    ],
)
def test_a_plan_that_is_lost_is_an_error_and_not_the_default_builder(rewrite):
    builder = Counting()
    rewriting = Rewriting(TensorRTPartitioner(builder=builder, **OPTIONS), rewrite)
    with pytest.raises(PartitionError, match=r"partition tensorrt_0: .* are lost"):
        to_edge_transform_and_lower(export(), partitioner=[rewriting])
    assert builder.device_ids == []
