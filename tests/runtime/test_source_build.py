"""The plugin in a project that builds ExecuTorch from source: tests/runtime/source_build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import executorch
import pytest
import torch

from tests.support.native_environment import OLDEST_CMAKE, ROOT, run, run_simulated
from tests.support.native_programs import export

PROJECT = ROOT / "tests/runtime/source_build"


def cmake(*arguments: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return run(OLDEST_CMAKE, *arguments, env={**os.environ, "PATH": path})


def configure(folder: Path, target: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Configure the project with a stand-in for ExecuTorch's target of that name."""
    values = {
        "RUNTIME_TARGET": target,
        "WHEEL": next(iter(executorch.__path__)),
        "Python3_EXECUTABLE": sys.executable,
        "CMAKE_BUILD_TYPE": "Debug",
        "CMAKE_UNITY_BUILD": "ON",
    }
    given = [f"-D{name}={value}" for name, value in values.items()]
    return cmake("-S", PROJECT, "-B", folder, "-G", "Ninja", *given, *options)


@pytest.fixture(scope="module")
def static_build(tmp_path_factory):
    """The folder of the programs with everything in archives."""
    folder = tmp_path_factory.mktemp("static") / "build"
    done = configure(folder, "executorch_core")
    assert "plugin: STATIC_LIBRARY for executorch_core" in done.stdout, done.stdout + done.stderr
    done = cmake("--build", folder, "--target", "run_pte", "beside_cuda_backend")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.long
def test_a_plugin_for_a_static_runtime_is_an_archive_that_registers_itself(static_build, tmp_path):
    model = torch.nn.Linear(4, 2)
    program = export(tmp_path, "linear", model, (torch.ones(1, 4),), host=True)
    first, outputs = run_simulated(static_build / "run_pte", program.path)
    assert first == f"trt-et {first.split()[1]} (executorch 1.5.1)"
    expected = model(torch.ones(1, 4))[0]
    torch.testing.assert_close(torch.tensor([float(text) for text in outputs.split()]), expected)


@pytest.mark.long
def test_beside_the_cuda_backend_in_one_program_its_allocator_and_streams_are_used(static_build):
    status, stream = run_simulated(static_build / "beside_cuda_backend")
    assert stream == "stream 0x1"  # CUDA's legacy stream, as the caller's guard has it.
    assert json.loads(status) == {"backend": True, "allocator": False, "cuda": "", "problem": ""}


def test_a_plugin_for_a_shared_runtime_is_shared(tmp_path):
    done = configure(tmp_path, "executorch_shared")
    assert "plugin: SHARED_LIBRARY for executorch_shared" in done.stdout, done.stdout + done.stderr


def test_an_installed_source_build_is_found(tmp_path):
    package = tmp_path / "lib/cmake/ExecuTorch"
    package.mkdir(parents=True)
    stand_in = PROJECT / "executorch/CMakeLists.txt"
    (package / "executorch-config.cmake").write_text(f'include("{stand_in}")\n')
    root = f"-Dexecutorch_ROOT={tmp_path}"
    done = configure(tmp_path / "build", "executorch-shared", root)
    assert "plugin: SHARED_LIBRARY for executorch-shared" in done.stdout, done.stdout + done.stderr


def test_a_shared_plugin_for_a_static_runtime_is_refused(tmp_path):
    done = configure(tmp_path, "executorch_core", "-DTRT_ET_STATIC=OFF")
    assert done.returncode == 1
    assert "a shared plugin would contain a second runtime" in " ".join(done.stderr.split())
