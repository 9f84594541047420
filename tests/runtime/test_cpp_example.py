"""examples/cpp builds against the installed wheels, and runs a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from tests.support.native_environment import ROOT, environment
from tests.support.native_programs import export


def test_the_example_builds_against_the_installed_package_and_runs(tmp_path):
    cmake = Path(sys.executable).with_name("cmake")
    build = tmp_path / "build"
    configure = [
        cmake,
        "-S",
        ROOT / "examples/cpp",
        "-B",
        build,
        f"-DPython3_EXECUTABLE={sys.executable}",
    ]
    for command in (configure, [cmake, "--build", build]):
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
    model = torch.nn.Linear(4, 2)
    program = export(tmp_path, "linear", model, (torch.ones(1, 4),), host=True)
    done = subprocess.run(
        [build / "run_pte", program.path],
        env=environment(TRT_ET_CUDA="simulated:1"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    first, outputs = done.stdout.splitlines()
    assert "1 GPU(s)" in first
    expected = model(torch.ones(1, 4))[0]
    torch.testing.assert_close(torch.tensor([float(text) for text in outputs.split()]), expected)
