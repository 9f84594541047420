from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.support.native_environment import ROOT, build, environment, run
from tests.support.python_process import run_forked


@pytest.fixture(scope="session")
def plugin() -> ctypes.CDLL:
    import trt_et.runtime

    trt_et.runtime.load()
    return ctypes.CDLL(str(trt_et.runtime.plugin_path()))


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from tests.support.native_programs import Programs

    return Programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Runs jobs in the stock runtime of a fresh process."""
    import torch

    def run(*jobs: dict[str, Any], mode: str | None = None, **env: str) -> dict[str, Any]:
        tmp_path = tmp_path_factory.mktemp("stock")
        torch.save(list(jobs), tmp_path / "jobs")
        code = "from tests.support.run_stock import main; main()"
        arguments = ["jobs", "results", *([mode] if mode else [])]
        done = run_forked(code, *arguments, cwd=tmp_path, env=environment(**env))
        assert done.returncode == 0, done.stderr
        facts: dict[str, Any] = torch.load(tmp_path / "results")
        return facts | {"stderr": done.stderr}

    return run


@pytest.fixture(scope="session")
def runner() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run executor_runner with variables; a crash (a negative status) is a failure of any test.

    ``TRT_ET_TEST_RUNNER`` names another command for it: ``make test-aarch64`` runs it in emulation.
    """
    import trt_et.runtime

    named = os.environ.get("TRT_ET_TEST_RUNNER")
    command = shlex.split(named) if named else [str(trt_et.runtime.runner_path())]

    def start(*arguments, cuda=None, statuses=(0, 1), **env):
        done = run(*command, *arguments, env=environment(TRT_ET_CUDA=cuda, **env))
        assert done.returncode in statuses, (done.returncode, done.stderr)
        return done

    return start


def _build(*targets: str) -> Path:
    """Build targets of the native tests; returns the build folder."""
    folder = ROOT / "build/fake"
    folder.mkdir(parents=True, exist_ok=True)
    # Workers of pytest-xdist share the folder.
    with FileLock(folder / "lock", timeout=600):
        build(folder, list(targets), "-DTRT_ET_BUILD_GPU_CHECK=ON", "-DTRT_ET_BUILD_TESTS=ON")
    return folder


@pytest.fixture(scope="session")
def gpu_probe() -> Path:
    """The program of tests/gpu/native, compiled against the fake TensorRT."""
    return _build("gpu_probe") / "tests/gpu/native/gpu_probe"


@pytest.fixture(scope="session")
def blob_reader() -> ctypes.CDLL:
    """The plugin's parser of engine blobs, with ``read_blob()``."""
    folder = _build("trt_et_blob_reader") / "tests/runtime/native"
    library = ctypes.CDLL(str(folder / "libtrt_et_blob_reader.so"))
    library.read_blob.restype = ctypes.c_int64
    library.read_blob.argtypes = [ctypes.c_char_p, ctypes.c_size_t] * 2
    return library


@pytest.fixture(scope="session")
def fakes() -> Path:
    """The folder of the fakes of TensorRT 10, 11 and TensorRT-RTX, built where needed."""
    if named := os.environ.get("TRT_ET_FAKE_TENSORRT"):
        return Path(named)
    targets = ("fake_nvinfer", "fake_nvinfer_10", "fake_tensorrt_rtx")
    return _build(*targets) / "tests/runtime/tensorrt_fake"


@pytest.fixture(scope="session")
def fake_tensorrt(fakes: Path) -> dict[str, str]:
    """The environment that makes a process use the fake of TensorRT 11."""
    return {"TRT_ET_TENSORRT_LIBRARY": str(fakes / "libfake_nvinfer.so")}


@pytest.fixture(scope="session")
def fake_cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fake driver of two GPUs, and fake CUDA runtimes."""
    folder = tmp_path_factory.mktemp("fake_cuda")
    command = ["cc", "-shared", "-fPIC", ROOT / "tests/support/fake_cuda.c", "-o"]
    driver = [folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, *driver], check=True, timeout=600)
    for major in (12, 13):
        (folder / str(major)).mkdir()
        runtime = folder / str(major) / f"libcudart.so.{major}"
        flag = f"-DFAKE_RUNTIME={major}000"
        subprocess.run([*command, runtime, flag], check=True, timeout=600)
    return folder
