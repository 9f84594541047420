"""What the command imports, and its exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trt_et
from tests.support.cli.command_line import invoke, run
from tests.support.cli.sample_programs import program

HEAVY = ("torch", "numpy", "executorch", "tensorrt", "tensorrt_rtx", "torch_tensorrt", "matplotlib")


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--version"], []),
        (["--help"], []),
        # The package flatbuffers imports numpy.
        (["inspect", "{file}"], ["numpy"]),
        (["cache", "list"], ["numpy"]),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(tmp_path, arguments, needed):
    file = tmp_path / "x.pte"
    file.write_bytes(program("split"))
    arguments = [argument.format(file=file) for argument in arguments]
    code = f"""
import sys
from trt_et.cli import app
app({arguments!r}, standalone_mode=False)
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    environment = {"PATH": "", "TRT_ET_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.splitlines()[-1] == str(needed)


def test_running_a_program_does_not_import_the_exporter(tmp_path):
    file = tmp_path / "x.pte"
    file.write_bytes(program("split"))
    code = f"""
import sys
from trt_et.cli.program import Request
from trt_et.cli.worker import perform
assert perform(Request("run", {str(file)!r}, cuda="simulated:2"))["outputs"]
print([name for name in ("torch", "executorch.exir", "torch._dynamo") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['torch']"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("--version >/dev/full", "trt-et: [Errno 28] No space left on device\n"),
        ("inspect x.pte >&-", "trt-et: [Errno 9] Bad file descriptor\n"),
        ("--version <&- >&- 2>&-", ""),
    ],
)
def test_an_output_that_does_not_arrive_is_a_failure(tmp_path, command, reason):
    (tmp_path / "x.pte").write_bytes(program("split"))
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m trt_et.cli {command}"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, reason)


def test_the_version_is_printed():
    assert run("--version") == f"trt-et {trt_et.__version__}\n"


def test_wrong_usage_is_exit_status_2():
    for arguments in (["--colour"], ["paint"], ["inspect"], ["inspect", "x", "--delegate", "-1"]):
        assert invoke(*arguments).exit_code == 2


def test_completion_can_be_shown_by_the_installed_command():
    done = subprocess.run(
        [Path(sys.executable).with_name("trt-et"), "--show-completion", "bash"],
        capture_output=True,
        text=True,
        # Typer asks which shell started it, and a test may have none.
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "complete" in done.stdout
