"""Programs with dynamic shapes: ranges in the blob, sizes read off tensors, and what is refused."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import to_edge
from torch.export import Dim

from tests.support.lowering import blobs, export_with_batch, lower, reference
from tests.support.models import Unary
from trt_et import OptionError
from trt_et.engine_info import decode_blob
from trt_et.engine_program.contiguous_boundary import contiguous_boundary
from trt_et.engines.serialize import build_network
from trt_et.engines.tensorrt_rtx import TensorRTRTXBuilder


@pytest.mark.parametrize(("builder", "name"), [("reference", "cnn"), ("tensorrt_rtx", "cnn")])
def test_a_dynamic_batch_is_one_engine_with_the_exported_range(builder, name):
    (blob,) = blobs(lower(export_with_batch(name), builder=builder))
    info = decode_blob(blob).info
    for binding in info.bindings:
        assert binding.shape[0] == -1
        assert -1 not in binding.shape[1:]
        assert binding.min_shape == (1, *binding.shape[1:])
        assert binding.max_shape == (8, *binding.shape[1:])


def exported(function, *sizes: int, maximum: int = 10) -> torch.export.ExportedProgram:
    dynamic = ({0: Dim("n", max=maximum)},)
    return torch.export.export(Unary(function), (torch.randn(sizes),), dynamic_shapes=dynamic)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ((3,), (12,), (30,))),
        ({"optimization_profiles": [{"x": {0: (2, 5, 7)}}]}, ((6,), (15,), (21,))),
    ],
)
def test_a_derived_dimension_has_the_derived_range(options, expected):
    program = exported(lambda x: (x * 2).reshape(-1), 4, 3)
    (blob,) = blobs(lower(program, **options))
    (output,) = decode_blob(blob).info.outputs
    assert output.shape == (-1,)
    assert (output.min_shape, output.opt_shape, output.max_shape) == expected


def test_an_input_that_may_be_empty_is_named_and_has_one_element(caplog):
    program = exported(lambda x: x + 1, 8, 2)
    (x,) = (node for node in program.graph.nodes if node.name == "x")
    graph = torch.fx.Graph()
    rest = graph.placeholder("rest")
    with x.meta["val"].fake_mode:
        rest.meta["val"] = torch.empty(x.meta["val"].shape[0] // 2, 2)
    graph.output((rest,))
    (given,), _, _ = contiguous_boundary(graph, {"rest"}, "tensorrt_1", ())
    assert (given.min_shape, given.max_shape) == ((1, 2), (5, 2))
    assert "partition tensorrt_1: dimension 0 of its input rest is" in caplog.text
    assert "larger smallest size" in caplog.text


def test_sizes_are_computed_outside_and_are_no_arguments_of_the_engine():
    token = torch.randn(1, 1, 4)  # In front of each row, as often as there are rows.
    program = exported(lambda x: torch.cat([token.expand(x.shape[0], -1, -1), x], 1) * 2, 2, 3, 4)
    partitioner = reference(full_graph=True)
    (blob,) = blobs(lower(program, partitioner=partitioner))
    assert len(decode_blob(blob).info.inputs) == 1
    assert all("size" in reason for _, _, reason in partitioner.report.not_delegated)


def test_an_unbounded_dimension_is_named_and_left_to_the_cpu():
    dynamic = ({0: Dim.DYNAMIC},)
    program = torch.export.export(Unary(lambda x: x + 1), (torch.randn(4),), dynamic_shapes=dynamic)
    report = reference().explain(program)
    assert not report.partitions
    (reason,) = [why for _, name, why in report.not_delegated if name == "aten::add.Tensor"]
    assert "(dimension 0 of x) has no upper bound" in reason
    assert "max=N" in reason


def test_a_size_that_no_input_tensor_shows_stays_out():
    program = exported(lambda x: (torch.cumsum(x, 0), torch.zeros(x.shape[0] * 2) + 1), 4)
    partitioner = reference(excluded_ops=["aten.cumsum"])
    lower(program, partitioner=partitioner)
    assert any("no tensor input" in reason for _, _, reason in partitioner.report.not_delegated)


def two_profiles(name: str) -> list[dict]:
    """One token at a time, or several."""
    return [{name: {0: 1}}, {name: {0: (2, 4, 6)}}]


def test_profiles_are_ranges_of_every_partition():
    program = exported(lambda x: torch.cumsum(x * 2, 1) + x, 4, 3, maximum=8)
    pte = lower(program, excluded_ops=["aten.cumsum"], optimization_profiles=two_profiles("x"))
    found = [decode_blob(blob).info for blob in blobs(pte)]
    assert len(found) == 2
    for binding in (binding for info in found for binding in info.bindings):
        assert (binding.shape[0], binding.min_shape[0], binding.max_shape[0]) == (-1, 1, 6)
        assert binding.opt_shape[0] == 1


@pytest.fixture(scope="module")
def mlp():
    return to_edge(export_with_batch("mlp")).exported_program()


def test_an_engine_has_every_profile_that_was_asked_for():
    seen = []

    class Spy(TensorRTRTXBuilder):
        def build(self, request):
            seen.append((request.program.profiles, build_network(request).config))
            return super().build(request)

    # The placeholder is input_1; dynamic_shapes calls it input.
    lower(export_with_batch("mlp"), builder=Spy(), optimization_profiles=two_profiles("input"))
    ((profiles, config),) = seen
    assert profiles == (
        {"input0": ((1, 16), (1, 16), (1, 16))},
        {"input0": ((2, 16), (4, 16), (6, 16))},
    )
    assert config.num_optimization_profiles == 2


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ([{"y": {0: 1}}], "tensor inputs are input_1"),
        ([{"input_1": {1: 4}}], "always 16"),
        ([{"input_1": {7: 4}}], "2 dimensions"),
        ([{"input_1": {0: (1, 4, 9)}}], "exported for 1 to 8"),
        ([{"input_1": {0: (4, 2, 8)}}], "smallest, best, largest"),
        ([{"input_1": {0: 0}}], "smallest, best, largest"),
        ([{"input_1": {0: True}}], "smallest, best, largest"),
        ([{"input_1": {"0": 1}}], "expected an index"),
        ([{"input_1": 3}], "expected a mapping"),
        ({"input_1": {0: 1}}, "expected a sequence"),
        ("input", "expected a sequence"),
    ],
)
def test_an_impossible_profile_is_refused(profiles, message, mlp):
    with pytest.raises(OptionError, match=message):
        reference(optimization_profiles=profiles).partition(mlp)
