"""An engine runs on the TensorRT that its blob, or else its first bytes name, or on the next."""

from __future__ import annotations

import pytest
import torch

from tests.support.fake_tensorrt import FakeBuilder, Line
from tests.support.native_programs import export


@pytest.fixture(scope="module")
def libraries(fakes, tmp_path_factory):
    """A folder with TensorRT 10 and 11."""
    folder = tmp_path_factory.mktemp("libraries")
    for major, name in ((10, "libfake_nvinfer_10.so"), (11, "libfake_nvinfer.so")):
        (folder / f"libnvinfer.so.{major}").symlink_to(fakes / name)
    return folder


@pytest.fixture
def run(runner, fake_cuda, tmp_path):
    """Runs a program with an engine of a fake, with the libraries of a folder."""

    def start(builder, libraries, **variables):
        program = export(tmp_path, "line", Line(), (torch.ones(3, 8),), builder=builder)
        return runner(
            *("--model_path", program.path),
            LD_LIBRARY_PATH=f"{libraries}:{fake_cuda}",
            TRT_ET_CUDART_LIBRARY=str(fake_cuda / "libcuda.so.1"),
            TRT_ET_LOG="debug",
            **variables,
        )

    return start


@pytest.mark.parametrize(
    ("plan_version", "problem"),
    [
        ((10, 3, 0, 26), ""),
        ((11, 1, 0, 106), ""),
        # As before: the newest TensorRT is asked.
        (None, ""),
        # The bytes name a TensorRT that nothing here runs.
        ((9, 3, 0, 1), "engine for TensorRT 9.3.0.1: this build of trt-et has no engine provider"),
    ],
)
def test_an_engine_of_torch_tensorrt_finds_its_tensorrt(libraries, run, plan_version, problem):
    done = run(FakeBuilder(upstream=True, plan_version=plan_version), libraries)
    assert problem in done.stderr
    assert ("loaded a TensorRT engine" in done.stderr) == (not problem), done.stderr
    assert ("Output 0: Float [3, 8]" in done.stdout) == (not problem)


@pytest.fixture
def of_11(fakes, tmp_path):
    """A folder with TensorRT 11 alone."""
    (tmp_path / "libnvinfer.so.11").symlink_to(fakes / "libfake_nvinfer.so")
    return tmp_path


TEN = {"version": "10.3.0", "plan_version": (10, 3, 0, 26)}


def test_tensorrt_11_runs_a_version_compatible_engine_of_10(of_11, run):
    done = run(FakeBuilder(host_code=True, **TEN), of_11, TRT_ET_ENGINE_HOST_CODE="1")
    assert "loaded a TensorRT engine" in done.stderr
    assert "Output 0: Float [3, 8]" in done.stdout


@pytest.mark.parametrize("upstream", [False, True])
def test_another_engine_of_10_is_refused_with_both_versions(of_11, run, upstream):
    done = run(FakeBuilder(upstream=upstream, **TEN), of_11)
    assert "the engine plan file is not compatible" in done.stderr
    assert "libnvinfer.so.11)" in done.stderr  # The library that was found.
    known = "engine was built by TensorRT 10.3.0, this machine has 11.7.3 ("
    assert (known in done.stderr) is not upstream
    assert "Output 0" not in done.stdout


def test_a_version_compatible_engine_needs_consent(of_11, run):
    done = run(FakeBuilder(host_code=True, **TEN), of_11)
    assert "the engine holds host code, which is not allowed" in done.stderr


def test_without_any_tensorrt_the_one_that_built_the_engine_is_asked_for(run, tmp_path):
    (tmp_path / "none").mkdir()
    done = run(FakeBuilder(**TEN), tmp_path / "none")
    assert "no TensorRT 10: libnvinfer.so.10 not found; install it" in done.stderr


def test_tensorrt_10_does_not_run_an_engine_of_11(fakes, run, tmp_path):
    folder = tmp_path / "of_10"
    folder.mkdir()
    (folder / "libnvinfer.so.10").symlink_to(fakes / "libfake_nvinfer_10.so")
    done = run(FakeBuilder(host_code=True, version="11.1.0"), folder, TRT_ET_ENGINE_HOST_CODE="1")
    assert "no TensorRT 11: libnvinfer.so.11 not found" in done.stderr
