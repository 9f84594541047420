"""``trt-et build`` and ``--write_engines``: engines of this machine in place of networks."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower

from tests.support.fake_tensorrt import FakeNetworkBuilder, Scale
from tests.support.native_environment import run_python
from tests.support.native_programs import Mlp, Program, export
from trt_et import TensorRTPartitioner
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


def build(program: Path, library: Path | None, *flags: str) -> subprocess.CompletedProcess[str]:
    named = None if library is None else str(library)
    return run_python(
        *("-m", "trt_et.cli", "build", str(program), *flags),
        TRT_ET_CUDA="simulated:1",
        TRT_ET_TENSORRT_LIBRARY=named,
    )


@pytest.fixture
def run(runner):
    """Run a file with the inputs of a program; no engine may be built."""

    def start(path: Path, library: Path, program: Program, *flags: object):
        inputs = program.input_files()[0]
        return runner(
            *("--model_path", path, "--build", "0", "--inputs", inputs, *flags),
            cuda="simulated:1",
            TRT_ET_TENSORRT_LIBRARY=str(library),
        )

    return start


@pytest.fixture
def write_engines(runner):
    """Write the program without Python."""

    def start(program: Path, library: Path, output: Path, *flags: str):
        return runner(
            *("--model_path", program, "--write_engines", output, *flags),
            cuda="simulated:1",
            TRT_ET_TENSORRT_LIBRARY=str(library),
        )

    return start


@pytest.mark.parametrize("builder", FAKES)
def test_the_program_has_engines_and_no_weights(run, program, fakes, tmp_path, builder):
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
    ran = run(output, library, program, "--output_file", out)
    assert ran.returncode == 0, ran.stderr
    found = np.fromfile(f"{out}-0.bin", dtype=np.float32)
    np.testing.assert_allclose(found, program.outputs[0].detach().numpy().flatten(), rtol=1e-6)


def test_an_engine_that_cannot_be_built_is_one_line(write_engines, fakes, tmp_path):
    builder = FakeNetworkBuilder("refuse /gelu Gelu not today\n")
    program = export(tmp_path, "bad", Scale(), (torch.randn(2, 512),), builder=builder)
    output = tmp_path / "built.pte"
    done = build(program.path, fakes / "libfake_nvinfer.so", "-o", str(output))
    assert done.returncode == 1
    reason = "TensorRT 11.7.3 does not take node '/gelu' (Gelu): not today"
    assert f"the engine cannot be built here: {reason}" in done.stderr
    assert not output.exists()
    done = write_engines(program.path, fakes / "libfake_nvinfer.so", output)
    assert done.returncode == 1
    assert f"--write_engines: {reason}" in done.stderr
    assert not list(tmp_path.glob("built.pte*"))


def test_a_program_without_networks_is_refused(fakes, tmp_path):
    program = export(tmp_path, "mlp", Mlp(), (torch.randn(2, 8),))
    done = build(program.path, fakes / "libfake_nvinfer.so", "-o", str(tmp_path / "built.pte"))
    assert done.returncode == 1
    message = "the program has no ONNX networks; export it with builder='onnx'"
    assert f"{program.path}: {message} (on the command line: --builder onnx)" in done.stderr


def test_onnxruntime_builds_no_engines(program, tmp_path):
    done = build(program.path, None, "-o", str(tmp_path / "x.pte"))
    assert done.returncode == 1
    assert "builds no engine of what builder 'onnx' made" in done.stderr


class Mixed(torch.nn.Module):
    """Two networks, and a product between them that stays on the CPU, with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = Scale(3.0), Scale(0.5)
        self.table = torch.nn.Parameter(torch.randn(512, 512))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x) @ self.table)


def test_other_weights_methods_and_delegates_stay(run, write_engines, fakes, tmp_path):
    """`other` shares the first network's weight; the CPU's product is XNNPACK's."""
    x = torch.randn(2, 512)
    mixed = Mixed().eval()
    partitioners = [
        TensorRTPartitioner(builder=FakeNetworkBuilder(), excluded_ops=("aten.mm.default",)),
        XnnpackPartitioner(),
    ]
    methods = {"forward": mixed, "other": Scale(3.0).eval()}
    manager = to_edge_transform_and_lower(
        {name: torch.export.export(module, (x,)) for name, module in methods.items()},
        partitioner=dict.fromkeys(methods, partitioners),
    )
    program = Program(tmp_path / "mixed.pte", [x], [])
    program.path.write_bytes(manager.to_executorch().buffer)
    library, output = fakes / FAKES["tensorrt"][0], tmp_path / "built.pte"
    done = write_engines(program.path, library, output, "--engine_folder", "off")
    assert done.returncode == 0, done.stderr
    # Weights of networks are gone, and the product's is not.
    assert output.stat().st_size < program.path.stat().st_size
    assert program.path.stat().st_size > mixed.table.nbytes
    assert output.stat().st_size > mixed.table.nbytes
    for name, module in methods.items():
        ran = run(output, library, program, "--method_name", name, "--output_file", tmp_path / name)
        assert ran.returncode == 0, ran.stderr
        found = np.fromfile(f"{tmp_path / name}-0.bin", dtype=np.float32)
        expected = module(x).detach().numpy().flatten()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_runner_writes_the_blobs_of_the_command_line(write_engines, fakes, program, tmp_path):
    library = fakes / FAKES["tensorrt"][0]
    folder, ours, theirs = tmp_path / "engines", tmp_path / "ours.pte", tmp_path / "theirs.pte"
    done = write_engines(program.path, library, ours, "--engine_folder", str(folder))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert len(list(folder.iterdir())) == 1
    flags = ("-o", str(theirs), "--engine-folder", str(folder))
    assert build(program.path, library, *flags).returncode == 0
    blobs = [
        [bytes(delegate.blob) for delegate in inspect_file(path).methods[0].delegates]
        for path in (ours, theirs)
    ]
    assert blobs[0] == blobs[1]


def test_a_copied_engine_folder_serves_a_device_that_must_not_build(
    run, write_engines, fakes, program, tmp_path
):
    library = fakes / FAKES["tensorrt"][0]
    folder, shipped = tmp_path / "engines", tmp_path / "shipped"
    refused = run(program.path, library, program, "--engine_folder", shipped)
    assert refused.returncode == 1
    assert "load once with build=1" in refused.stderr
    write_engines(program.path, library, tmp_path / "x.pte", "--engine_folder", str(folder))
    shutil.copytree(folder, shipped)
    assert run(program.path, library, program, "--engine_folder", shipped).returncode == 0


@pytest.mark.parametrize("cut", [10, 30, 100, 700, 2000])
def test_what_is_no_program_is_refused(write_engines, fakes, program, tmp_path, cut):
    damaged = tmp_path / "damaged.pte"
    damaged.write_bytes(program.path.read_bytes()[:cut])
    done = write_engines(damaged, fakes / FAKES["tensorrt"][0], tmp_path / "out.pte")
    assert done.returncode == 1
    assert "no ExecuTorch program" in done.stderr or "cannot be opened" in done.stderr
    assert not list(tmp_path.glob("out.pte*"))


def test_a_file_that_cannot_be_written_is_one_line(write_engines, fakes, program, tmp_path):
    done = write_engines(
        program.path, fakes / FAKES["tensorrt"][0], tmp_path / "nowhere" / "out.pte"
    )
    assert done.returncode == 1
    assert "nowhere/out.pte.part: No such file or directory" in done.stderr
