"""Every example runs, and agrees with eager; it exits with 1 otherwise."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.python_process import run_forked
from tests.support.run_documents import STDOUT
from tests.support.sampled import chosen

ROOT = Path(__file__).parents[1]
ARGUMENTS = {
    "cnn_precisions.py": " --short --steps 20 --only int8",
    "detector.py": " --size 160",
    "llm.py": " --short",
    "precisions.py": " --no-engines --only float16",
    "robot_policy.py": " act",
}
EXAMPLES = {
    path.name: f"{path}{ARGUMENTS.get(path.name, '')}"
    for path in sorted((ROOT / "examples").iterdir())
    if path.suffix in (".py", ".ipynb")
}
NEEDED = {"detector.py": "torchvision", "robot_policy.py": "lerobot"}
RUN = [name for name in EXAMPLES if find_spec(NEEDED.get(name, "torch"))]
LONG = (
    *("cnn_precisions.py", "detector.py", "dynamic.py", "image_classifier.py", "llm.py"),
    *("precisions.py", "quantized.py", "robot_policy.py"),
    *("quickstart.ipynb", "quickstart.py", "two_gpus.py", "with_xnnpack.py"),
)
# A policy of the same form as lerobot's, which CI does not have.
ROBOT = """
import sys, torch
from pathlib import Path
from torch import nn

sys.path.insert(0, "examples")
import robot_policy, trt_et.runtime
from robot_policies import Method, Policy, as_lerobot, camera_image

class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 4, 8, stride=8), nn.ReLU(), nn.Flatten())
        self.expert = nn.Linear(16 + 6 + 2, 2)
        self.register_buffer("features", torch.zeros(1, 16 + 6))
        self.register_buffer("actions", torch.zeros(1, 2))

    def encode(self, image, joints, noise):
        self.features.copy_(torch.cat([self.encoder(as_lerobot(image)), joints], 1))
        self.actions.copy_(noise * 2)

    def denoise(self, step):
        velocity = self.expert(torch.cat([self.features, self.actions], 1))
        self.actions.add_(velocity / (step + 1))
        self.features.copy_(self.features)
        return self.actions * 1.5

file, policy = Path(sys.argv[1]), Small().eval()
with torch.no_grad():
    seen = camera_image(16, 16), torch.randn(1, 6), torch.randn(1, 2)
    policy.encode(*seen)
    expected = [policy.denoise(torch.tensor([step])) for step in range(3)][-1]
    methods = Method(policy, policy.encode), Method(policy, policy.denoise)
    robot = Policy(methods[0], [seen], expected, methods[1], 3)
    robot_policy.export(robot, "reference", file)
    trt_et.runtime.load(cuda="simulated:1")
    controller = robot_policy.Controller(file, robot)
    for _ in range(2):
        torch.testing.assert_close(controller.actions(), expected)
image = 16 * 16 * 3
assert controller.copied == {"encode": image + 4 * (6 + 2), "denoise": 8 + 4 * 2}, controller.copied
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory, pytestconfig) -> dict[str, tuple[Path, str]]:
    """Where each example ran, and what went wrong."""
    names = [name for name in RUN if pytestconfig.getoption("--long") or name not in LONG]
    folder = tmp_path_factory.mktemp("examples")
    environment = {k: v for k, v in os.environ.items() if k != "TRT_ET_CUDA"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "tests.support.run_documents", "results.json"]
    command += [EXAMPLES[name] for name in names]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    problems = json.loads((folder / "results.json").read_text())
    return {name: (folder / str(i), problems[EXAMPLES[name]]) for i, name in enumerate(names)}


def output(results: dict[str, tuple[Path, str]], name: str) -> str:
    return (results[name][0] / STDOUT).read_text()


@pytest.mark.parametrize("name", chosen(EXAMPLES, *(EXAMPLES.keys() - {*LONG})))
def test_it_runs_and_agrees_with_eager(name, results):
    if name not in RUN:
        pytest.skip(f"{NEEDED[name]} is not installed")
    assert results[name][1] == ""


@pytest.mark.long
def test_the_classifier_plots_copies_engines_and_cpu_operators(results):
    plot = results["image_classifier.py"][0] / "image_classifier" / "times.png"
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_demo_ends_with_agreement(results):
    printed = output(results, "minilm.py")
    scores = [float(score) for score in re.findall(r"│ (0\.\d{7}|1\.0{7})", printed)]
    assert len(scores) >= 2
    assert min(scores) >= 0.9999
    assert "tensorrt_rtx" in printed
    assert "cuda:0" in printed


@pytest.mark.long
def test_the_language_model_example_says_what_eager_says(results):
    printed = output(results, "llm.py")
    assert printed.count(" yes ") == 3
    for builder in ("tensorrt_rtx", "reference"):
        assert f"llm-{builder}.pte: 1 engine" in printed


@pytest.mark.long
def test_a_robot_policy_copies_its_inputs_and_actions_only(tmp_path):
    done = run_forked(ROBOT, str(tmp_path / "policy.pte"), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("tensorrt_0") == 2
    assert "not delegated" not in done.stdout
