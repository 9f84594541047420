"""What lies beside the plugin is found, however the loader has found the plugin."""

from __future__ import annotations

import shutil
from pathlib import Path

import executorch
import pytest

import trt_et.runtime
from tests.support.native_environment import environment, run
from tests.support.python_process import run_forked


@pytest.fixture
def shipped(programs, tmp_path):
    """A program as it is shipped: the runner beside a folder of libraries."""
    (tmp_path / "lib").mkdir()
    runner = trt_et.runtime.runner_path()
    executorch_libraries = Path(next(iter(executorch.__path__))) / "lib"
    for library in (
        *runner.parents[1].glob("lib/*.so"),
        *executorch_libraries.glob("libexecutorch*.so"),
    ):
        shutil.copy(library, tmp_path / "lib")
    shutil.copy(runner, tmp_path / "lib")
    shutil.copy(programs["mlp"].path, tmp_path / "model.pte")
    return tmp_path


def check(folder: Path, libraries: str, program: str = "./executor_runner") -> None:
    variables = environment(LD_LIBRARY_PATH=libraries, TRT_ET_CUDA="simulated:1")
    model = folder / ("model.pte" if (folder / "model.pte").exists() else "../model.pte")
    done = run(program, "--model_path", model, env=variables, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("libraries", [".", "./", "../lib", "../lib/../lib"])
def test_by_a_relative_path(shipped, libraries):
    check(shipped / "lib", libraries)


@pytest.mark.parametrize("libraries", ["lib", "./lib"])
def test_by_a_path_from_the_folder_of_the_program(shipped, libraries):
    check(shipped, libraries, "lib/executor_runner")


def test_in_a_linked_folder_and_by_a_link(shipped):
    (shipped / "deep" / "down").mkdir(parents=True)
    (shipped / "deep" / "down" / "linked").symlink_to(shipped / "lib")
    # ".." of a linked folder is not the folder that the link is in.
    check(shipped / "lib", str(shipped / "deep" / "down" / "linked" / ".." / "lib"))
    alone = shipped / "alone"
    alone.mkdir()
    (alone / "libtrt_et_backend.so").symlink_to(shipped / "lib" / "libtrt_et_backend.so")
    check(shipped / "lib", f"{alone}:{shipped / 'lib'}")


def test_the_folder_may_change_before_the_first_use(shipped):
    code = """
import os
import trt_et.runtime
trt_et.runtime.load_plugin()
os.chdir("/")
trt_et.runtime.load("simulated:2")
assert trt_et.runtime.device_count() == 2, trt_et.runtime.last_error()
"""
    variables = environment(TRT_ET_PLUGIN="lib/libtrt_et_backend.so")
    done = run_forked(code, cwd=shipped, env=variables)
    assert done.returncode == 0, done.stderr


def test_the_remedy_that_was_tried_is_not_offered(shipped):
    folder = shipped / "lib"
    (folder / "libtrt_et_simulation.so").unlink()
    for mode in ("simulated:1", None):
        variables = environment(LD_LIBRARY_PATH=".", TRT_ET_CUDA=mode)
        done = run(
            "./executor_runner",
            "--model_path",
            "../model.pte",
            env=variables,
            folder=shipped / "lib",
        )
        assert done.returncode != 0
        assert "simulated GPUs need libtrt_et_simulation.so next to the plugin" in done.stderr
        assert "TRT_ET_CUDA=simulated:N" not in done.stderr
