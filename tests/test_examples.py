"""Every example runs, and agrees with eager; it exits with 1 otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# tests/test_documents.py runs these in processes of their own.
ALONE = {ROOT / "examples" / "minilm.py", ROOT / "examples" / "llm.py"}
EXAMPLES = sorted({*ROOT.glob("examples/*.py"), *ROOT.glob("examples/*.ipynb")} - ALONE)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """Where the examples ran, and what went wrong."""
    folder = tmp_path_factory.mktemp("examples")
    environment = {k: v for k, v in os.environ.items() if k != "TRT_ET_CUDA"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "tests.support.run_documents", "results.json"]
    done = subprocess.run(
        [*command, *map(str, EXAMPLES)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads((folder / "results.json").read_text())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_it_runs_and_agrees_with_eager(example, results):
    assert results[1][str(example)] == ""


def test_the_classifier_plots_copies_engines_and_cpu_operators(results):
    (plot,) = results[0].glob("*/image_classifier/times.png")
    assert plot.read_bytes().startswith(b"\x89PNG")
