"""What cannot be built is refused with its name, and leaves nothing half done."""

from __future__ import annotations

import pytest
import torch
from executorch.exir import EdgeCompileConfig, to_edge, to_edge_transform_and_lower
from executorch.exir.backend.backend_api import to_backend
from torch import nn
from torch.export import Dim

from tests.support.lowering import export, lower, reference
from tests.support.models import Function
from trt_et import OptionError, PartitionError, TensorRTPartitioner
from trt_et.conversion.installed import installed_variant
from trt_et.engines import EngineBuilder
from trt_et.engines.reference.builder import ReferenceBuilder
from trt_et.inspection import inspect_program

SPLIT = {"excluded_ops": [torch.ops.aten.cumsum]}


class FailsOnTheSecond(EngineBuilder):
    """Builds the first partition rightly, and not the second."""

    name = "second-time-unlucky"

    def __init__(self, result: object) -> None:
        self.result = result
        self.built = 0

    def build(self, request):
        self.built += 1
        if self.built == 1:
            return ReferenceBuilder().build(request)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ValueError("no such kernel"), "no such kernel"),
        (b"TR01" + bytes(100), "outside the blob of 104"),
    ],
)
def test_one_failing_partition_of_two_is_named_and_the_program_stays_as_it_was(result, text):
    program = export("split")
    weights = {name: value.clone() for name, value in program.state_dict.items()}
    before = str(program.graph)
    builder = FailsOnTheSecond(result)
    with pytest.raises(PartitionError) as raised:
        lower(program, builder=builder, **SPLIT)
    message = str(raised.value)
    assert "tensorrt_1" in message
    assert "tensorrt_0" not in message
    assert "'second-time-unlucky'" in message
    assert "aten::sub.Tensor" in message
    assert text in message
    assert builder.built == 2
    assert str(program.graph) == before
    assert all(torch.equal(program.state_dict[name], value) for name, value in weights.items())
    (method,) = inspect_program(lower(program, **SPLIT))
    assert [delegate.problem for delegate in method.delegates] == ["", ""]


# How many rows it returns depends on the values.
NON_ZERO = Function(lambda x: torch.nonzero(x * 2) + 1)


def edge(model: nn.Module, *inputs: torch.Tensor, **options) -> torch.export.ExportedProgram:
    program = torch.export.export(model.eval(), inputs, **options)
    config = EdgeCompileConfig(_check_ir_validity=False)
    return to_edge(program, compile_config=config).exported_program()


@pytest.mark.skipif(installed_variant() is None, reason="Torch-TensorRT is not installed")
def test_forced_into_an_engine_a_size_that_depends_on_data_is_refused():
    with pytest.raises(PartitionError, match=r"(?s)nonzero.*depends on data"):
        to_backend("TensorRTBackend", edge(NON_ZERO, torch.randn(3, 4)), [])


@pytest.mark.skipif(installed_variant() is None, reason="Torch-TensorRT is not installed")
def test_forced_into_an_engine_an_unbounded_dimension_is_named():
    add = Function(lambda x: x + 1)
    program = edge(add, torch.randn(4), dynamic_shapes=(({0: Dim.DYNAMIC},),))
    with pytest.raises(PartitionError, match=r"(?s)dimension s\d+ .*no upper bound.*max=N"):
        to_backend("TensorRTBackend", program, [])


MLP = nn.Linear(4, 4).eval()


@pytest.mark.parametrize(
    ("model", "partitioner", "message"),
    [
        (None, reference(), "is one TensorRTPartitioner; expected a list"),
        ("model.pt", [reference()], r"got str; expected an exported pro"),
        (MLP, [reference()], r"got Linear; expected an exported program"),
    ],
)
def test_a_wrong_argument_of_executorch_is_answered_with_the_right_one(model, partitioner, message):
    program = model or torch.export.export(MLP, (torch.ones(2, 4),))
    with pytest.raises(OptionError, match=message):
        to_edge_transform_and_lower(program, partitioner=partitioner)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "compile_specs is int; expected a list of CompileSpec"),
        ("reference", r"compile_specs is 'reference'; .*builder='reference'"),
    ],
)
def test_compile_specs_that_are_no_list_are_refused(given, message):
    with pytest.raises(OptionError, match=message):
        TensorRTPartitioner(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.ones(2, 5), r"calibration\[0\]: input input is \[2, 5\]; expected \[2, 4\]"),
        (torch.ones(2, 4, 1), r"input input is \[2, 4, 1\]; expected \[2, 4\]"),
    ],
)
def test_calibration_of_another_shape_names_both(given, message):
    partitioner = reference(precision="float16", calibration=[(given,)])
    with pytest.raises(OptionError, match=message):
        partitioner.explain(torch.export.export(MLP, (torch.ones(2, 4),)))


def test_a_model_without_values_is_an_error():
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)
        program = torch.export.export(model, (x,))
    assert reference().explain(program).partitions
    with pytest.raises(PartitionError, match=r"weight \S+ has no values: .*FakeTensorMode"):
        lower(program)
