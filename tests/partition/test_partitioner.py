"""What is delegated, what stays out and why, and what goes wrong clearly."""

from __future__ import annotations

import gc
import logging

import pytest
import torch
import torch.nn.functional as F
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec
from torch import nn
from torch.nn import functional

from tests.support.lowering import export, lower, lower_case, reference
from tests.support.models import Function
from tests.support.sampled import chosen
from trt_et import (
    BackendConflictError,
    OptionError,
    PartitionError,
    TensorRTBackend,
    TensorRTPartitioner,
)
from trt_et.engines.libraries import warn_once
from trt_et.inspection import inspect_program


def exported(model: nn.Module, *inputs: torch.Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(model.eval(), inputs)


@pytest.mark.parametrize(
    "name", ["mlp", "cnn", "channels_last", "outputs", "order", *chosen(["vit"])]
)
def test_supported_models_become_one_engine_and_nothing_else(name, caplog):
    partitioner = reference()
    warn_once("reference")  # Said once in a process.
    caplog.clear()
    with caplog.at_level(logging.WARNING, "trt_et"):
        pte = lower(export(name), partitioner=partitioner)
    assert caplog.records == []  # The stock runtime has all kernels.
    (method,) = inspect_program(pte)
    assert [delegate.backend_id for delegate in method.delegates] == ["TensorRTBackend"]
    assert partitioner.report.not_delegated == ()
    assert {op.split("::")[0] for op in method.cpu_operators} == {"et_copy"}


def test_what_stays_out_has_a_reason(caplog):
    def function(x, i):
        return (
            torch.nonzero(torch.relu(x)) + 1,
            x * torch.rand(4),
            x.double().sin(),
            x[:0].cos(),
            functional.one_hot(i, 6) * 2,
        )

    partitioner = reference()
    program = exported(Function(function), torch.randn(4), torch.tensor([5, 3]))
    with caplog.at_level(logging.DEBUG, "trt_et"):
        to_edge_transform_and_lower(program, partitioner=[partitioner])
    reasons = {operator: reason for _, operator, reason in partitioner.report.not_delegated}
    assert "depends on data" in reasons["aten::nonzero.default"]
    assert "depends on data" in reasons["aten::add.Tensor"]
    assert "random" in reasons["aten::rand.default"]
    assert "float64" in reasons["aten::sin.default"]
    assert "without elements" in reasons["aten::cos.default"]
    assert any("returns no tensor" in reason for reason in reasons.values())
    assert "nonzero" in caplog.text


def test_a_model_of_views_alone_is_a_valid_program_and_a_warning(caplog):
    partitioner = reference()
    program = exported(Function(lambda x: x.permute(1, 0)), torch.randn(2, 3))
    with caplog.at_level(logging.WARNING, "trt_et"):
        pte = lower(program, partitioner=partitioner)
    assert inspect_program(pte)[0].delegates == ()
    assert partitioner.report.partitions == ()
    assert "reshape" in partitioner.report.not_delegated[0][2]
    (line,) = [r.getMessage() for r in caplog.records if "no engine" in r.getMessage()]
    assert "permute" in line


def test_views_beside_an_engine_are_not_in_it():
    model = Function(lambda x, y: (x.permute(1, 0), torch.relu(y).permute(1, 0)))
    partitioner = reference()
    lower(exported(model, torch.randn(2, 3), torch.randn(2, 3)), partitioner=partitioner)
    (part,) = partitioner.report.partitions
    assert part.operators == ("aten::relu.default", "aten::permute_copy.default")
    assert len(part.inputs) == len(part.outputs) == 1
    ((_, operator, why),) = partitioner.report.not_delegated
    assert (operator, "reshape" in why) == ("aten::permute_copy.default", True)


@pytest.mark.parametrize(
    ("function", "min_block_size", "count"),
    [
        (lambda x: (x * 2 + 1).relu(), 3, 1),
        (lambda x: x**2, 4, 0),
        (lambda x: x.half(), 4, 0),
        (lambda x: x[1:] - 1, 4, 0),
        (lambda x: F.avg_pool3d(x[None, None], (1, 2, 2)), 4, 1),  # No CPU kernel.
    ],
)
def test_min_block_size_counts_if_the_cpu_has_the_kernels(function, min_block_size, count):
    program = exported(Function(function), torch.randn(3, 4))
    report = reference(min_block_size=min_block_size).explain(program)
    assert len(report.partitions) == count


def test_full_graph_lists_what_stays_out():
    lower_case("cnn", full_graph=True)
    with pytest.raises(PartitionError, match=r"not delegated: .*cumsum.*excluded by the caller"):
        lower_case("split", full_graph=True, excluded_ops=["aten.cumsum"])


def test_a_partitioner_has_the_attributes_of_executorchs_others():
    """Torch-TensorRT's class has them, too."""
    given = [CompileSpec("warm_up_at_load", b"1")]
    partitioner = TensorRTPartitioner(given, builder="reference")
    assert partitioner.compile_specs == given
    assert partitioner.delegation_spec == DelegationSpec("TensorRTBackend", given)
    partitioner.delegation_spec.compile_specs.append(CompileSpec("target_device", b"cuda:3"))
    (delegate,) = inspect_program(lower(export("mlp"), partitioner=partitioner))[0].delegates
    assert dict(delegate.compile_specs).items() >= {
        ("warm_up_at_load", b"1"),
        ("target_device", b"cuda:3"),
    }
    assert len(given) == 1


def test_an_unknown_setting_of_torch_tensorrt_is_refused():
    with pytest.raises(OptionError, match="did you mean disable_tf32"):
        lower_case("mlp", builder="tensorrt_rtx", torch_tensorrt_settings={"disable_tf23": True})


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
        del other
        gc.collect()
    assert TensorRTBackend in BackendDetails.__subclasses__()
    reference()


def test_weights_are_not_copied_for_preprocessing():
    program = object()
    assert TensorRTBackend.copy_exported_program_for_preprocess(program, []) is program
