"""The command that runs peers' tests, on tests that are written here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.network_evaluator.comparison import Verdict
from tests.support.peers import __main__ as command
from tests.support.peers import judge, report
from trt_et.errors import BuilderError

HARNESS = """
import unittest, torch
@unittest.skipIf(not torch.cuda.is_available(), "no GPU")
class DispatchTestCase(unittest.TestCase):
    def run_test(self, module, inputs):
        raise NotImplementedError
    run_test_with_dynamic_shape = run_test_compare_tensor_attributes_only = run_test
"""
CASES = """
import os, torch
from torch_tensorrt import Input
from .harness import DispatchTestCase
class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
    def forward(self, x):
        return self.function(x)
class TestFake(DispatchTestCase):
    def test_add(self):
        self.run_test(Call(lambda x: x + 1).cuda(), [torch.ones(2, device="cuda")])
    def test_crash(self):
        os._exit(3)
    def test_dynamic(self):
        spec = Input(min_shape=(1, 4), opt_shape=(3, 4), max_shape=(5, 4), dtype=torch.float32)
        self.run_test_with_dynamic_shape(Call(torch.relu), [spec])
    def test_eager(self):
        self.run_test(Call(lambda x: x @ x), [torch.ones(2, 3)])
    def test_nothing(self):
        self.assertTrue(True)
    def test_random(self):
        self.run_test_compare_tensor_attributes_only(Call(torch.rand_like), [torch.ones(2)])
"""
MODELS = """
import pytest, torch
@pytest.mark.parametrize("size", [4])
def test_model(test_runner, size):
    test_runner.lower_and_run_model(torch.nn.Linear(size, 2), (torch.randn(1, size),))
"""


def checkout(folder: Path) -> dict[str, str]:
    """Write a checkout of both peers, and return the environment that names it."""
    conversion = folder / "tests/py/dynamo/conversion"
    models = folder / "backends/test/suite/models"
    conversion.mkdir(parents=True)
    models.mkdir(parents=True)
    (conversion / "__init__.py").touch()
    (conversion / "harness.py").write_text(HARNESS)
    (conversion / "test_fake.py").write_text(CASES)
    (conversion / "test_not_imported.py").write_text("import no_such_module")
    (models / "test_fake_model.py").write_text(MODELS)
    return {**os.environ, "TORCH_TENSORRT": str(folder), "EXECUTORCH": str(folder)}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.support.peers", *arguments],
        cwd=command.ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


def test_each_case_has_an_outcome_and_a_crash_loses_one(tmp_path):
    environment = checkout(tmp_path / "peers")
    results = tmp_path / "results"
    # In the sample mode no document is written.
    done = run(environment, str(results), "--every", "1")
    assert done.returncode == 1, done.stderr[-2000:]  # The crash has no known cause.
    lines = [
        json.loads(line)
        for path in sorted(results.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    outcomes = {line["case"].rpartition("::")[2]: line["outcome"] for line in lines}
    assert outcomes == {
        "test_not_imported.py": "not imported",
        "test_add": "right",
        "test_crash": "crashed",
        "test_dynamic": "right",
        "test_eager": "eager fails",
        "test_nothing": "hands over no program",
        "test_random": "right, nothing delegated",
        "test_model[4]": "right",
    }
    assert "| `torch_tensorrt` | 6 | 7 | 3 | 1 | 3 |" in done.stdout
    again = run(environment, str(results), "--every", "1")
    assert again.stdout == done.stdout
    assert sum(len(path.read_text().splitlines()) for path in results.glob("*.jsonl")) == len(lines)


def test_without_a_checkout_the_command_says_what_to_set(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_TENSORRT"}
    done = run(environment, str(tmp_path))
    assert done.returncode == 1
    assert "Set TORCH_TENSORRT to a checkout of pytorch/TensorRT" in done.stderr


def test_a_case_that_takes_too_long_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "LIMIT", 0.5)
    results = tmp_path / "results.jsonl"
    results.write_text('{"case": "a", "outcome": "running"}\n')
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    assert command._wait(process, results) == "timed out"
    assert process.returncode != 0
    assert time.monotonic() - start < 60


class Linear(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 2)


def judged() -> str:
    return judge.judge(judge.Handed(Linear(), [(torch.randn(1, 4),)]))[0]


def builders(failing: str):
    """Builders of which one fails."""
    make = judge.make_builder

    def make_builder(name):
        builder = make(name)
        if name == failing:

            def fail(request):
                raise BuilderError("on purpose")

            builder.build = fail
        return builder

    return make_builder


@pytest.mark.parametrize(
    ("failing", "outcome"),
    [("", "right"), ("tensorrt_rtx", "export ended"), ("reference", "run: wrong")],
)
def test_a_failure_of_this_backend_is_told_apart(monkeypatch, failing, outcome):
    monkeypatch.setattr(judge, "make_builder", builders(failing))
    assert judged() == outcome


def test_a_network_that_differs_is_not_right(monkeypatch):
    verdict = Verdict("p", [], "different", "on purpose")
    monkeypatch.setattr(judge, "compare", lambda request: verdict)
    assert judged() == "network: different"


def test_a_result_that_differs_is_not_right(monkeypatch):
    monkeypatch.setattr(judge, "_leaves", lambda values, leaves=judge._leaves: leaves(values))
    shifted = judge.difference
    monkeypatch.setattr(judge, "difference", lambda have, want, _: shifted(have + 1, want, 1e-4))
    # ExecuTorch alone is compared in the same way.
    assert judged() == "right by its networks"
    monkeypatch.setattr(judge, "_alone", lambda *_: "")
    assert judged() == "run: wrong"


def test_a_cause_is_found_by_its_pattern(monkeypatch):
    entry = {"case": "test_a::test_b", "outcome": "run: wrong", "why": "output 0"}
    assert not report.cause(entry)
    monkeypatch.setattr(report, "CAUSES", {r"test_b.*output 0": "ties"})
    assert report.cause(entry) == "ties"
