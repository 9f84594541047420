"""Question 4: does compute-sanitizer find anything?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
@pytest.mark.parametrize("name", ["line", "pair", "dynamic", "cut"])
def test_a_program_has_no_finding(name, tool, setup, record, skip):
    if shutil.which("compute-sanitizer") is None:
        skip("compute-sanitizer is not installed")
    program = Path(setup.engines) / f"{name}.{setup.engines_builder}.pte"
    command = ["compute-sanitizer", "--tool", tool, "--target-processes", "all"]
    command += ["--error-exitcode", "3", setup.runner, "--model_path", program]
    # gpu_check ends the eight of them after 540 seconds.
    done = setup.run(*command, "--num_executions", "5", timeout=60)
    record({"exit": done.returncode, "tail": done.stdout[-1500:]})
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-500:]
