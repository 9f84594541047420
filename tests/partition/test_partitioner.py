"""What is delegated, what stays out and why, and what goes wrong clearly."""

from __future__ import annotations

import logging

import pytest
import torch
from executorch.exir import to_edge, to_edge_transform_and_lower
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from torch import nn
from torch.nn import functional

from tests.support.lowering import export, lower, lower_case, reference
from tests.support.models import Function, make
from trt_et import (
    BackendConflictError,
    OptionError,
    PartitionError,
    TensorRTBackend,
    TensorRTPartitioner,
)
from trt_et.inspection import inspect_program


def exported(model: nn.Module, *inputs: torch.Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(model.eval(), inputs)


@pytest.mark.parametrize("name", ["mlp", "cnn", "vit", "channels_last", "outputs", "order"])
def test_supported_models_become_one_engine_and_nothing_else(name, caplog):
    partitioner = reference()
    with caplog.at_level(logging.WARNING, "trt_et"):
        pte = lower(export(name), partitioner=partitioner)
    assert caplog.records == []  # The stock runtime has all kernels.
    (method,) = inspect_program(pte)
    assert [delegate.backend_id for delegate in method.delegates] == ["TensorRTBackend"]
    assert partitioner.report.not_delegated == ()
    assert {op.split("::")[0] for op in method.cpu_operators} == {"et_copy"}


def test_linear_and_attention_are_preserved():
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(8, 8)

        def forward(self, x):
            q = self.project(x)
            return functional.scaled_dot_product_attention(q, x, x)

    partitioner = reference()
    lower(exported(Attention(), torch.randn(1, 2, 4, 8)), partitioner=partitioner)
    (partition,) = partitioner.report.partitions
    assert partition.operators == (
        "aten::linear.default",
        "aten::scaled_dot_product_attention.default",
    )


def test_the_edge_manager_way_delegates_the_same_model():
    model, inputs = make("cnn")
    partitioner = reference()
    manager = to_edge(torch.export.export(model, inputs)).to_backend(partitioner)
    (method,) = inspect_program(bytes(manager.to_executorch().buffer))
    assert len(method.delegates) == 1
    assert partitioner.report.not_delegated == ()


def test_what_stays_out_has_a_reason(caplog):
    partitioner = reference()
    model = Function(lambda x: torch.nonzero(torch.relu(x)) + torch.rand(1).long())
    with caplog.at_level(logging.DEBUG, "trt_et"):
        lower(exported(model, torch.randn(4)), partitioner=partitioner)
    reasons = {operator: reason for _, operator, reason in partitioner.report.not_delegated}
    assert "depends on data" in reasons["aten::nonzero.default"]
    assert "depends on data" in reasons["aten::add.Tensor"]
    assert "random" in reasons["aten::rand.default"]
    assert "nonzero" in caplog.text


@pytest.mark.parametrize(
    ("model", "inputs", "reason"),
    [
        (Function(lambda x: x.double() * 2), (torch.randn(2),), "float64"),
        (Function(lambda x: x * 2), (torch.randn(0, 3),), "without elements"),
        (Function(lambda x: x + torch.randn(3)), (torch.rand(3),), "random"),
        (
            Function(lambda x: functional.one_hot(x, 6) * 2),
            (torch.tensor([5, 3]),),
            "returns no tensor",
        ),
    ],
)
def test_dtypes_shapes_and_random_numbers_that_an_engine_cannot_have(model, inputs, reason):
    partitioner = reference()
    program = exported(model, *inputs)
    to_edge_transform_and_lower(program, partitioner=[partitioner])
    assert any(reason in why for _, _, why in partitioner.report.not_delegated)


def test_a_model_with_nothing_to_delegate_is_a_valid_program_and_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "trt_et"):
        pte = lower(exported(Function(torch.nonzero), torch.randn(3)))
    assert inspect_program(pte)[0].delegates == ()
    (record,) = caplog.records
    assert "no engine" in record.getMessage()
    assert "nonzero" in record.getMessage()


def test_views_alone_are_no_partition():
    partitioner = reference()
    lower(exported(Function(lambda x: x.permute(1, 0)), torch.randn(2, 3)), partitioner=partitioner)
    assert partitioner.report.partitions == ()
    assert "reshape" in partitioner.report.not_delegated[0][2]


def test_views_beside_an_engine_are_not_in_it():
    model = Function(lambda x, y: (x.permute(1, 0), torch.relu(y).permute(1, 0)))
    partitioner = reference()
    lower(exported(model, torch.randn(2, 3), torch.randn(2, 3)), partitioner=partitioner)
    (part,) = partitioner.report.partitions
    assert part.operators == ("aten::relu.default", "aten::permute_copy.default")
    assert len(part.inputs) == len(part.outputs) == 1
    ((_, operator, why),) = partitioner.report.not_delegated
    assert (operator, "reshape" in why) == ("aten::permute_copy.default", True)


def test_an_operator_without_a_cpu_kernel_is_worth_an_engine():
    class Sorted(torch.nn.Module):
        def forward(self, x):
            return x.sort(1).values

    program = torch.export.export(Sorted(), (torch.randn(3, 4),))
    (partition,) = reference(min_block_size=3).explain(program).partitions
    assert partition.operators[0] == "aten::sort.default"


@pytest.mark.parametrize("function", [lambda x: x**2, lambda x: x.half(), lambda x: x[1:] - 1])
def test_min_block_size_counts_if_the_cpu_has_the_kernels(function):
    program = exported(Function(function), torch.randn(3, 4))
    assert reference(min_block_size=4).explain(program).partitions == ()


def test_min_block_size_drops_small_partitions():
    partitioner = reference(min_block_size=3)
    model = Function(lambda x: torch.cumsum(x * 2, 0))
    excluded = reference(min_block_size=3, excluded_ops=[torch.ops.aten.cumsum.default])
    lower(exported(model, torch.randn(3)), partitioner=excluded)
    assert excluded.report.partitions == ()
    lower(exported(Function(lambda x: (x * 2 + 1).relu()), torch.randn(3)), partitioner=partitioner)
    assert len(partitioner.report.partitions) == 1


def test_full_graph_lists_what_stays_out():
    lower_case("vit", full_graph=True)
    with pytest.raises(PartitionError, match=r"not delegated: .*cumsum.*excluded by the caller"):
        lower_case("split", full_graph=True, excluded_ops=["aten.cumsum"])


def test_settings_reach_torch_tensorrt():
    plain = lower_case("mlp", builder="tensorrt_rtx")
    assert lower_case("mlp", builder="tensorrt_rtx", settings={"disable_tf32": False}) == plain
    with pytest.raises(OptionError, match="did you mean disable_tf32"):
        lower_case("mlp", builder="tensorrt_rtx", settings={"disable_tf23": True})
    with pytest.raises(OptionError, match="option of the partitioner"):
        reference(settings={"device": "cuda:1"})


def test_mutated_buffers_stay_above_the_delegate():
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))
            self.register_buffer("scale", torch.ones(3))

        def forward(self, x):
            self.total.add_(x * self.scale)
            return self.total * 2

    partitioner = reference()
    program = exported(Counter(), torch.randn(3))
    manager = to_edge_transform_and_lower(program, partitioner=[partitioner])
    signature = manager.exported_program().graph_signature
    assert list(signature.buffers_to_mutate.values()) == ["total"]
    assert "total" in signature.inputs_to_buffers.values()
    assert "scale" not in signature.inputs_to_buffers.values()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"builder": "tensorflow"}, "unknown"),
        ({"builder": 3}, "int"),
        ({"builder": "reference", "min_block_size": 0}, "min_block_size"),
        ({"builder": "reference", "excluded_ops": "aten.add"}, "excluded_ops"),
    ],
)
def test_impossible_options_are_refused_at_once(options, text):
    with pytest.raises(OptionError, match=text):
        TensorRTPartitioner(**options)


def test_a_device_function_that_returns_no_gpu_is_refused():
    with pytest.raises(OptionError, match="not a GPU"):
        lower_case("mlp", device=lambda partition: "cpu")


def test_another_backend_of_our_name_is_detected():
    def make_class():
        class TensorRTBackend(BackendDetails):
            @staticmethod
            def preprocess(edge_program, compile_specs):
                return PreprocessResult(b"")

        return TensorRTBackend

    partitioner = reference()
    other = make_class()
    try:
        with pytest.raises(BackendConflictError, match="make_class"):
            reference()
        with pytest.raises(BackendConflictError, match="make_class"):
            lower(export("mlp"), partitioner=partitioner)
    finally:
        # ExecuTorch asks for all subclasses, and a class lives until it is collected.
        import gc

        del other
        gc.collect()
    assert TensorRTBackend in BackendDetails.__subclasses__()
    reference()


def test_weights_are_not_copied_for_preprocessing():
    program = object()
    assert TensorRTBackend.copy_exported_program_for_preprocess(program, []) is program
