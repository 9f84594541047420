"""``compare`` with ``per_partition``: the engine that goes wrong is the one that is named."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch
from executorch.exir import to_edge_transform_and_lower

import trt_et
from tests.support.cli.sample_programs import program
from tests.support.simulated_gpus import load_runtime
from trt_et import TensorRTPartitioner
from trt_et.cli.models import export_model
from trt_et.cli.program import Request
from trt_et.cli.worker import perform
from trt_et.errors import BuilderError, OptionError, RunError

MODELS = """
import torch

class Chain(torch.nn.Module):
    # Two engines of equal shapes, with a sum on the CPU between them.
    def __init__(self, *wrong):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        with torch.no_grad():
            for layer, error in wrong:
                getattr(self, layer).bias += error

    def forward(self, x):
        return torch.relu(self.second(torch.cumsum(torch.relu(self.first(x)), 0)))

class State(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("seen", torch.zeros(2, 4))
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = torch.cumsum(self.linear(x) + self.seen, 0)
        self.seen.add_(x * 3)
        return torch.relu(y) * 2 + self.seen

class Sizes(torch.nn.Module):
    def forward(self, x):
        y = torch.relu(x) + 1
        flat = torch.cumsum(y, 0).reshape(-1)
        return torch.sigmoid(flat).reshape(x.shape[0], 4) * y, x.shape[0]

X = (torch.linspace(-1, 2, 8).reshape(2, 4),)

def chain():
    return Chain(), X
def wrong_first():
    return Chain(("first", 0.5)), X
def nans_second():
    return Chain(("second", float("nan"))), X
def by_name():
    return Chain(), {"x": X[0]}
class Difference(torch.nn.Module):
    def forward(self, a, b):
        return torch.relu(torch.cumsum(a - 2 * b, 0))

def named():
    return Difference(), {"b": X[0], "a": X[0] + 1}
def in_another_order():
    return Difference(), {"a": X[0] + 1, "b": X[0]}
def state():
    return State(), X
def sizes():
    return Sizes(), X, ({0: torch.export.Dim("n", min=2, max=8)},)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "partition_models.py").write_text(MODELS)
    load_runtime()
    yield tmp_path
    sys.modules.pop("partition_models", None)


def write(name: str) -> None:
    partitioner = TensorRTPartitioner(
        builder="reference", excluded_ops=["aten.cumsum"], device="cuda:1", progress=False
    )
    export_model(f"partition_models:{name}", partitioner, Path("file.pte"))


def compared(name: str, excluded: tuple[str, ...] = ("aten.cumsum",)) -> dict[str, Any]:
    request = Request(
        "compare",
        "file.pte",
        cuda="simulated:2",
        eager=f"partition_models:{name}",
        per_partition=True,
        excluded_ops=excluded,
    )
    return perform(request)


def errors(found: dict[str, Any]) -> dict[str, float]:
    return {
        part["partition"]: max(facts["largest_relative_error"] for facts in part["outputs"])
        for part in found["partitions"]
    }


@pytest.mark.parametrize(
    ("exported", "model"),
    [
        *(("state", "state"), ("sizes", "sizes"), ("by_name", "by_name")),
        ("named", "in_another_order"),
    ],
)
def test_every_engine_agrees_where_nothing_is_wrong(exported, model):
    write(exported)
    found = compared(model)
    assert found["outputs"][0]["largest_relative_error"] < 1e-6
    assert list(errors(found)) == ["tensorrt_0", "tensorrt_1"]
    assert max(errors(found).values()) < 1e-6


def test_the_engine_with_other_weights_is_wrong_and_the_one_behind_it_is_not():
    write("wrong_first")
    found = compared("chain")
    assert found["outputs"][0]["largest_relative_error"] > 0.1
    assert errors(found)["tensorrt_0"] > 0.1
    assert errors(found)["tensorrt_1"] < 1e-6
    first = found["partitions"][0]
    assert first["operators"] == ["aten::linear.default", "aten::relu.default"]
    assert first["device"] == "cuda:1"
    assert first["outputs"][0]["name"] == "aten_relu_default"


def test_the_engine_that_makes_nans_is_the_one_that_has_them():
    write("nans_second")
    found = compared("chain")
    assert errors(found)["tensorrt_0"] < 1e-6
    assert errors(found)["tensorrt_1"] == math.inf
    assert found["partitions"][1]["outputs"][0]["nans"] == 8


def test_from_python_the_table_names_outputs_and_engines(folder, monkeypatch):
    write("wrong_first")
    import partition_models

    model, inputs = partition_models.chain()
    excluded = ["aten.cumsum"]
    comparison = trt_et.compare(
        Path("file.pte").read_bytes(), model, inputs, excluded_ops=excluded, cuda="simulated:2"
    )
    assert comparison.outputs[0]["snr_db"] < 30
    first, second = comparison.engines
    assert first["outputs"][0]["snr_db"] < 30 < 100 < second["outputs"][0]["snr_db"]
    lines = [line.strip() for line in str(comparison).splitlines() if "." in line]
    assert [line.split("  ")[0] for line in lines] == [
        "output 0",
        "tensorrt_0 (first): aten_relu_default",
        "tensorrt_1 (second): aten_relu_default_1",
    ]
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # Text stays text.
    comparison.plot(folder / "errors.svg")
    drawn = (folder / "errors.svg").read_text()
    assert "Largest error of each output and engine, relative" in drawn
    with pytest.raises(OptionError, match="inputs is Tensor"):
        trt_et.compare("file.pte", model, inputs[0])
    with pytest.raises(OptionError, match=r"model is str; expected a module: compare\(program, mo"):
        trt_et.compare(model, "file.pte", inputs)
    manager = to_edge_transform_and_lower(torch.export.export(model, inputs))
    with pytest.raises(OptionError, match=r"program is EdgeProgramManager; .*\.to_executorch\(\)"):
        trt_et.compare(manager, model, inputs)


def test_another_model_and_other_options_are_refused():
    write("chain")
    with pytest.raises(RunError, match="calls 2 engines, the model makes 1 partitions"):
        compared("chain", excluded=())
    with pytest.raises(BuilderError, match="the file has no engine with its inputs and outputs"):
        compared("sizes")
    Path("file.pte").write_bytes(program("xnnpack"))
    with pytest.raises(RunError, match="the program's delegates are of XnnpackBackend"):
        compared("chain")
