"""Every example runs, and agrees with eager; it exits with 1 otherwise."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run_documents import STDOUT

ROOT = Path(__file__).parents[1]
ARGUMENTS = {
    "cnn_precisions.py": " --short --steps 20 --only int8",
    "detector.py": " --size 160",
    "llm.py": " --short",
    "precisions.py": " --no-engines --only float16",
}
EXAMPLES = {
    path.name: f"{path}{ARGUMENTS.get(path.name, '')}"
    for path in sorted((ROOT / "examples").iterdir())
    if path.suffix in (".py", ".ipynb")
}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """Where the examples ran, and what went wrong."""
    folder = tmp_path_factory.mktemp("examples")
    environment = {k: v for k, v in os.environ.items() if k != "TRT_ET_CUDA"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "tests.support.run_documents", "results.json"]
    done = subprocess.run(
        [*command, *EXAMPLES.values()], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads((folder / "results.json").read_text())


def output(results: tuple[Path, dict[str, str]], name: str) -> str:
    return (results[0] / str(list(EXAMPLES).index(name)) / STDOUT).read_text()


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs_and_agrees_with_eager(name, results):
    if name == "detector.py":
        pytest.importorskip("torchvision")
    assert results[1][EXAMPLES[name]] == ""


def test_the_classifier_plots_copies_engines_and_cpu_operators(results):
    (plot,) = results[0].glob("*/image_classifier/times.png")
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_demo_ends_with_agreement(results):
    printed = output(results, "minilm.py")
    scores = [float(score) for score in re.findall(r"│ (0\.\d{7}|1\.0{7})", printed)]
    assert len(scores) >= 2
    assert min(scores) >= 0.9999
    assert "tensorrt_rtx" in printed
    assert "cuda:0" in printed


def test_the_language_model_example_says_what_eager_says(results):
    printed = output(results, "llm.py")
    assert printed.count(" yes ") == 3
    for builder in ("tensorrt_rtx", "reference"):
        assert f"llm-{builder}.pte: 1 engine" in printed
