"""A blob without a version runs on the TensorRT that its engine's first bytes name."""

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
def test_an_engine_of_torch_tensorrt_finds_its_tensorrt(
    libraries, fake_cuda, runner, tmp_path, plan_version, problem
):
    builder = FakeBuilder(upstream=True, plan_version=plan_version)
    program = export(tmp_path, "line", Line(), (torch.ones(3, 8),), builder=builder)
    done = runner(
        *("--model_path", program.path),
        LD_LIBRARY_PATH=f"{libraries}:{fake_cuda}",
        TRT_ET_CUDART_LIBRARY=str(fake_cuda / "libcuda.so.1"),
        TRT_ET_LOG="debug",
    )
    assert problem in done.stderr
    assert ("loaded a TensorRT engine" in done.stderr) == (not problem), done.stderr
    assert ("Output 0: Float [3, 8]" in done.stdout) == (not problem)
