"""Values inside engines, for ExecuTorch's ``Inspector.calculate_numeric_gap``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.devtools import Inspector
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.runtime import Runtime
from torch import nn
from torch.nn import functional

from tests.support.models import Function
from tests.support.simulated_gpus import load_method, load_runtime
from trt_et import TensorRTPartitioner
from trt_et.blob.codec import decode_blob
from trt_et.engine_program.editable_program import EditableProgram
from trt_et.engines.reference.builder import ReferenceBuilder
from trt_et.inspection import read_program

ON_HOST = [CompileSpec("target_device", b"cpu")]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        hidden = functional.gelu(self.up(self.norm(x)))
        return torch.softmax(self.down(hidden), -1), hidden


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1)
        self.norm = nn.BatchNorm2d(8)
        self.norm.running_var.fill_(4.0)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        return self.second(x.permute(0, 2, 3, 1).permute(0, 3, 1, 2)).mean((2, 3))


class Branches(nn.Module):
    def forward(self, x):
        a, b = x.chunk(2, -1)
        values, indices = (a * b).topk(2)
        return values.exp() + indices + (x.sum() > 3)


def lower(model: nn.Module, inputs: Any, *, dynamic_shapes: Any = None, **options: Any) -> Any:
    options = {"builder": "reference", "progress": False, "debug_outputs": True, **options}
    manager = to_edge_transform_and_lower(
        torch.export.export(model, inputs, dynamic_shapes=dynamic_shapes),
        partitioner=[TensorRTPartitioner(ON_HOST, **options)],
        generate_etrecord=True,
    )
    return manager.to_executorch(ExecutorchBackendConfig(enable_non_cpu_memory_planning=False))


def gaps(program: Any, inputs: Any, folder: Path) -> dict[str, float]:
    """The signal-to-noise ratio of each operator of the model, by its name."""
    file, record = folder / "model.pte", program.get_etrecord()
    program.save(str(file))
    record.update_representative_inputs(list(inputs))
    record.save(str(folder / "model.etrecord"))
    load_runtime()
    loaded = Runtime.get().load_program(file, enable_etdump=True, debug_buffer_size=1 << 22)
    loaded.load_method("forward").execute(list(inputs))
    trace, values = str(folder / "model.etdump"), str(folder / "values")
    loaded.write_etdump_result_to_file(trace, values)
    inspector = Inspector(trace, etrecord=str(folder / "model.etrecord"), debug_buffer_path=values)
    table = inspector.calculate_numeric_gap("SNR")
    return {"+".join(ops): gap[0] for ops, gap in zip(table.aot_ops, table.gap, strict=True)}


def model_and_inputs(model: type[nn.Module]) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    shape = {Model: (4, 16), Image: (2, 3, 8, 8), Branches: (4, 16)}[model]
    return model().eval(), (torch.randn(shape),)


ROWS = ({0: torch.export.Dim("rows", min=1, max=8)},)


@pytest.mark.parametrize(
    ("model", "sizes", "operators"),
    [
        (Model, ROWS, {"layer_norm", "linear", "gelu", "linear_1", "softmax"}),
        (Image, None, {"batch_norm", "relu", "permute", "permute_1", "conv2d_1", "mean"}),
        (Branches, None, {"mul", "exp", "add", "sum_1", "gt", "add_1"}),
    ],
)
def test_each_operator_inside_an_engine_has_a_row(model, sizes, operators, tmp_path):
    net, inputs = model_and_inputs(model)
    found = gaps(lower(net, inputs, dynamic_shapes=sizes), inputs, tmp_path)
    assert found.keys() == operators
    assert all(gap > 90 for gap in found.values()), found


class WrongWeight(ReferenceBuilder):
    """Builds engines whose second weight matrix is wrong."""

    def build(self, request):
        program = EditableProgram(request.program.exported, request.program.constants)
        weight = [node for node, value in program.values.items() if value.dim() == 2][1]
        value = program.values[weight]
        wrong = program.add_constant(weight, "wrong", value * 1.01, weight.meta["val"])
        weight.replace_all_uses_with(wrong)
        asked = replace(request.program, exported=program.program())
        return super().build(replace(request, program=asked))


def test_the_gap_begins_at_a_wrong_layer(tmp_path):
    net, inputs = model_and_inputs(Model)
    found = gaps(lower(net, inputs, builder=WrongWeight()), inputs, tmp_path)
    bad = {name for name, gap in found.items() if gap < 60}
    assert bad == {"linear_1", "softmax"}


@pytest.mark.long
def test_values_keep_the_precision_that_they_have_without_it(tmp_path):
    """A sum stays float32 although its operands are outputs, which would be float32 otherwise."""
    net, inputs = model_and_inputs(Model)
    options = {"precision": "float16"}
    found = gaps(lower(net, inputs, **options), inputs, tmp_path)
    assert 50 < found["linear"] < 90
    values = [run(lower(net, inputs, debug_outputs=on, **options), inputs) for on in (True, False)]
    for with_them, without in zip(*values, strict=True):
        assert torch.equal(with_them, without)


def test_several_engines_and_equal_ones_have_rows_of_their_own(tmp_path):
    model = Function(lambda x: torch.relu(torch.relu(x).cumsum(0)))
    inputs = (torch.randn(2, 4),)
    program = lower(model, inputs, excluded_ops=["aten.cumsum"])
    found = gaps(program, inputs, tmp_path)
    assert found.keys() == {"relu", "cumsum", "relu_1"}
    assert all(gap > 90 for gap in found.values())


def test_a_program_runs_without_a_trace_and_inspect_shows_what_is_for_debugging():
    net, inputs = model_and_inputs(Model)
    program = lower(net, inputs)
    for expected, found in zip(net(*inputs), run(program, inputs), strict=True):
        torch.testing.assert_close(found, expected)
    delegate = read_program(program.buffer).methods[0].delegates[0]
    notes = [row[-1] for row in delegate.binding_rows(0)]
    assert "result of linear_1, for debugging" in notes
    names = [row[3] for row in delegate.binding_rows(0)]
    assert names.count("") == len(notes) - 3  # An input, two outputs.


@pytest.mark.parametrize("builder", ["tensorrt_rtx", "onnx"])
def test_engines_of_other_builders_have_the_same_outputs(builder):
    net, inputs = model_and_inputs(Model)
    blobs = [
        lower(net, inputs, builder=name)._emitter_output.program.backend_delegate_data[0].data
        for name in (builder, "reference")
    ]
    found, expected = (decode_blob(bytes(blob)).info.bindings for blob in blobs)
    assert found == expected
    assert {binding.value_of for binding in found} >= {"gelu_0", "linear_1"}


def run(program: Any, inputs: Any) -> list[torch.Tensor]:
    return [value.clone() for value in load_method(program.buffer).execute(list(inputs))]
