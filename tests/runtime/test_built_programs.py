"""``trt-et build``: engines of this machine in place of a program's networks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import trt_et.runtime
from tests.support.fake_tensorrt import FakeNetworkBuilder, Scale
from tests.support.native_environment import environment
from tests.support.native_programs import Mlp, Program, export
from trt_et.inspection import inspect_file

FAKES = {
    "tensorrt": ("libfake_nvinfer.so", "11.7.3.0"),
    "tensorrt_rtx": ("libfake_tensorrt_rtx.so", "1.10.3.0"),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Program:
    folder = tmp_path_factory.mktemp("network")
    builder = FakeNetworkBuilder()
    return export(folder, "scale", Scale(), (torch.randn(2, 512),), builder=builder)


def build(program: Path, library: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trt_et.cli", "build", str(program), *flags],
        env=environment(TRT_ET_CUDA="simulated:1", TRT_ET_TENSORRT_LIBRARY=str(library)),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("builder", FAKES)
def test_the_program_has_engines_and_no_weights(program, fakes, tmp_path, builder):
    library, version = fakes / FAKES[builder][0], FAKES[builder][1]
    output = tmp_path / "built.pte"
    done = build(program.path, library, "-o", str(output), "--engine-folder", "off", "--json")
    assert done.returncode == 0, done.stderr
    (engine,) = json.loads(done.stdout)["engines"]
    assert (engine["builder"], engine["library_version"]) == (builder, version)
    (delegate,) = inspect_file(output).methods[0].delegates
    info = delegate.engine
    assert info is not None
    assert info.network is None
    assert info.hardware_compatible == (builder == "tensorrt_rtx")
    weight = np.full(512, 3.0, dtype=np.float32).tobytes()
    assert weight in program.path.read_bytes()
    assert weight not in output.read_bytes()
    out = tmp_path / "out"
    ran = subprocess.run(
        [
            *(str(trt_et.runtime.runner_path()), "--model_path", str(output), "--build", "0"),
            *("--inputs", str(program.input_files()[0]), "--output_file", str(out)),
        ],
        env=environment(TRT_ET_CUDA="simulated:1", TRT_ET_TENSORRT_LIBRARY=str(library)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    found = np.fromfile(f"{out}-0.bin", dtype=np.float32)
    np.testing.assert_allclose(found, program.outputs[0].detach().numpy().flatten(), rtol=1e-6)


def test_an_engine_that_cannot_be_built_is_one_line(fakes, tmp_path):
    builder = FakeNetworkBuilder("refuse /gelu Gelu not today\n")
    program = export(tmp_path, "bad", Scale(), (torch.randn(2, 512),), builder=builder)
    output = tmp_path / "built.pte"
    done = build(program.path, fakes / "libfake_nvinfer.so", "-o", str(output))
    assert done.returncode == 1
    reason = "TensorRT 11.7.3 does not take node '/gelu' (Gelu): not today"
    assert f"the engine cannot be built here: {reason}" in done.stderr
    assert not output.exists()


def test_a_program_without_networks_is_refused(fakes, tmp_path):
    program = export(tmp_path, "mlp", Mlp(), (torch.randn(2, 8),))
    done = build(program.path, fakes / "libfake_nvinfer.so", "-o", str(tmp_path / "built.pte"))
    assert done.returncode == 1
    assert "the program has no ONNX networks; export it with builder='onnx'" in done.stderr


def test_onnxruntime_builds_no_engines(program, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "trt_et.cli", "build", str(program.path), "-o", tmp_path / "x.pte"],
        env=environment(TRT_ET_CUDA="simulated:1"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "builds no engine of what builder 'onnx' made" in done.stderr
