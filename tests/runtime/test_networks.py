"""Programs with ONNX networks: their engines are built at the first load, and kept."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import trt_et.runtime
from tests.support.fake_tensorrt import FakeNetworkBuilder, Scale
from tests.support.native_environment import environment
from tests.support.native_programs import Program, export

FAKES = {
    "TensorRT 10": "libfake_nvinfer_10.so",
    "TensorRT 11": "libfake_nvinfer.so",
    "TensorRT-RTX": "libfake_tensorrt_rtx.so",
}
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Program:
    batch = ({0: torch.export.Dim("batch", min=1, max=8)},)
    folder = tmp_path_factory.mktemp("network")
    builder = FakeNetworkBuilder()
    return export(folder, "scale", Scale(), (torch.randn(2, 512),), builder=builder, dynamic=batch)


def flags(program: Program, folder: Path) -> list[object]:
    inputs = ",".join(map(str, program.input_files()))
    return [
        *("--model_path", program.path, "--engine_folder", folder),
        *("--inputs", inputs, "--input_sizes", "2x512"),
    ]


@pytest.fixture
def run(program, fakes, runner, tmp_path) -> Run:
    def start(*more: str, fake: str = "TensorRT 11"):
        return runner(
            *(*flags(program, tmp_path / "engines"), *more),
            cuda="simulated:1",
            TRT_ET_TENSORRT_LIBRARY=str(fakes / FAKES[fake]),
            TRT_ET_RUNTIME_CACHE="off",
        )

    return start


@pytest.mark.parametrize("fake", FAKES)
def test_the_first_load_builds_and_the_second_does_not(program, run, tmp_path, fake):
    out = tmp_path / "out"
    first = run("--output_file", str(out), fake=fake)
    assert first.returncode == 0, first.stderr
    assert f"TensorRTBackend: {fake}" in first.stderr
    assert "builds an engine of a network of 0.0 MB for simulated" in first.stderr
    assert "built an engine of 0.0 MB" in first.stderr
    found = np.fromfile(f"{out}-0.bin", dtype=np.float32)
    np.testing.assert_allclose(found, program.outputs[0].detach().numpy().flatten(), rtol=1e-6)
    second = run(fake=fake)
    assert second.returncode == 0, second.stderr
    assert "engine of" not in second.stderr
    assert run("--build", "0", fake=fake).returncode == 0


def test_build_0_is_refused_with_what_to_do(run):
    refused = run("--build", "0")
    assert refused.returncode == 1
    assert "build=0, and " in refused.stderr
    assert "load once with build=1" in refused.stderr


def test_the_line_at_the_start_is_there_while_the_engine_is_built(fakes, tmp_path):
    slow = FakeNetworkBuilder("steps 1 60000\n")
    program = export(tmp_path, "slow", Scale(), (torch.randn(2, 512),), builder=slow)
    process = subprocess.Popen(
        list(map(str, [trt_et.runtime.runner_path(), *flags(program, tmp_path / "engines")])),
        env=environment(
            TRT_ET_CUDA="simulated:1",
            TRT_ET_TENSORRT_LIBRARY=str(fakes / "libfake_nvinfer.so"),
        ),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        start = time.monotonic()
        while "builds an engine of a network" not in process.stderr.readline():
            assert time.monotonic() - start < 50
    finally:
        process.kill()
        process.wait(60)


def test_build_with_names_the_library(run):
    refused = run("--build_with", "tensorrt_rtx")
    assert refused.returncode == 1
    assert "TensorRT-RTX 11.7.3 has an unknown interface" in refused.stderr
    assert run("--build_with", "tensorrt_rtx", fake="TensorRT-RTX").returncode == 0


def test_methods_share_one_engine_that_is_built_once(fake_tensorrt, runner, tmp_path):
    """Without a folder, too: the second method takes the engine that is loaded."""
    from executorch.exir import to_edge_transform_and_lower

    from trt_et import TensorRTPartitioner

    exported = torch.export.export(Scale(), (torch.ones(2, 512),))
    manager = to_edge_transform_and_lower(
        {"forward": exported, "again": exported},
        partitioner={
            name: [TensorRTPartitioner(builder=FakeNetworkBuilder())]
            for name in ("forward", "again")
        },
    )
    path = tmp_path / "two.pte"
    path.write_bytes(manager.to_executorch().buffer)
    done = runner(
        *("--model_path", path, "--engine_folder", "off", "--method_name", "forward,again"),
        cuda="simulated:1",
        **fake_tensorrt,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("built an engine of") == 1


@pytest.mark.skipif(find_spec("tensorrt_rtx_libs") is None, reason="no TensorRT-RTX: pip install")
def test_the_real_tensorrt_rtx_builds_at_load_up_to_the_driver(runner, tmp_path, fake_cuda):
    """A program of builder="onnx", on a fake driver: only the run needs a GPU."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval()
    program = export(tmp_path, "mlp", model, (torch.randn(2, 64),), builder="onnx")
    done = runner(
        *(*flags(program, tmp_path / "engines"), "--build_with", "tensorrt_rtx"),
        LD_LIBRARY_PATH=str(fake_cuda),
        TRT_ET_CUDART_LIBRARY=str(fake_cuda / "libcuda.so.1"),
    )
    assert done.returncode == 1  # Refused; a crash would be negative.
    assert "TensorRT-RTX 1." in done.stderr
    assert "built an engine of" in done.stderr
    (engine,) = (tmp_path / "engines").glob("*.engine")
    assert engine.read_bytes()[64:68] == b"vtrt"
    assert "refuses the engine" in done.stderr
