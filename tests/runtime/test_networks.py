"""Programs with ONNX networks: engines are built at the first load, or before it by
``trt-et build``, and kept.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower

import trt_et.runtime
from tests.support.fake_tensorrt import FakeNetworkBuilder, Scale
from tests.support.native_environment import environment
from tests.support.native_programs import Mlp, Program, export
from tests.support.python_process import run_forked
from trt_et import TensorRTPartitioner
from trt_et.inspection import inspect_file

FAKES = {
    "TensorRT 10": "libfake_nvinfer_10.so",
    "TensorRT 11": "libfake_nvinfer.so",
    "TensorRT-RTX": "libfake_tensorrt_rtx.so",
}
X = torch.randn(2, 512)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    batch = ({0: torch.export.Dim("batch", min=1, max=8)},)
    folder = tmp_path_factory.mktemp("network")
    return export(folder, "scale", Scale(), (X,), builder=FakeNetworkBuilder(), dynamic=batch)


def flags(program: Program, folder: Path) -> list[object]:
    inputs = ",".join(map(str, program.input_files()))
    return [
        *("--model_path", program.path, "--engine_folder", folder),
        *("--inputs", inputs, "--input_sizes", "2x512"),
    ]


@pytest.fixture
def run(program, fakes, runner, tmp_path):
    """Run `program`, or another file that takes its inputs."""

    def start(*more, path=None, fake="TensorRT 11"):
        model = [] if path is None else ["--model_path", path]
        return runner(
            *(*flags(program, tmp_path / "engines"), *model, *more),
            cuda="simulated:1",
            TRT_ET_TENSORRT_LIBRARY=str(fakes / FAKES[fake]),
            TRT_ET_RUNTIME_CACHE="off",
        )

    return start


@pytest.fixture
def check(run, tmp_path):
    """Run a program, and compare with a model."""

    def start(model, *more, **which):
        done = run("--output_file", tmp_path / "out", *more, **which)
        assert done.returncode == 0, done.stderr
        found = np.fromfile(tmp_path / "out-0.bin", dtype=np.float32)
        expected = model(X).detach().numpy().flatten()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        return done

    return start


@pytest.fixture
def build(fakes, tmp_path):
    """Call ``trt-et build``."""

    code = "import runpy; runpy.run_module('trt_et.cli', run_name='__main__')"

    def start(program, *flags, fake="TensorRT 11"):
        library = fake and str(fakes / FAKES[fake])
        variables = environment(TRT_ET_CUDA="simulated:1", TRT_ET_TENSORRT_LIBRARY=library)
        arguments = (
            "build",
            getattr(program, "path", program),
            "-o",
            tmp_path / "built.pte",
            *flags,
        )
        return run_forked(code, *arguments, cwd=tmp_path, env=variables)

    return start


@pytest.mark.parametrize("fake", FAKES)
def test_the_first_load_builds_and_the_second_does_not(run, check, fake):
    first = check(Scale(), fake=fake)
    assert f"TensorRTBackend: {fake}" in first.stderr
    assert "builds an engine of a network of 0.0 MB for simulated" in first.stderr
    assert "built an engine of 0.0 MB" in first.stderr
    second = run(fake=fake)
    assert second.returncode == 0, second.stderr
    assert "engine of" not in second.stderr
    assert run("--build", "0", fake=fake).returncode == 0


def test_the_line_at_the_start_is_there_while_the_engine_is_built(fakes, tmp_path):
    slow = FakeNetworkBuilder("steps 1 60000\n")
    program = export(tmp_path, "slow", Scale(), (X,), builder=slow)
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
        start = time.monotonic()
        while "builds an engine of a network" not in process.stderr.readline():
            assert time.monotonic() - start < 50
    finally:
        process.kill()
        process.wait(60)


@pytest.mark.skipif(find_spec("tensorrt_rtx_libs") is None, reason="no TensorRT-RTX: pip install")
def test_the_real_tensorrt_rtx_builds_at_load_up_to_the_driver(runner, tmp_path, fake_cuda):
    """A program of builder="onnx", on a fake driver: only the run needs a GPU."""
    program = export(tmp_path, "linear", torch.nn.Linear(512, 64), (X,), builder="onnx")
    done = runner(
        *flags(program, tmp_path / "engines"),
        LD_LIBRARY_PATH=str(fake_cuda),
        TRT_ET_CUDART_LIBRARY=str(fake_cuda / "libcuda.so.1"),
    )
    assert done.returncode == 1  # Refused; a crash would be negative.
    assert "TensorRT-RTX 1." in done.stderr
    assert "built an engine of" in done.stderr
    (engine,) = (tmp_path / "engines").glob("*.engine")
    assert engine.read_bytes()[64:68] == b"vtrt"
    assert "refuses the engine" in done.stderr


@pytest.mark.parametrize(
    ("fake", "builder", "version"),
    [("TensorRT 11", "tensorrt", "11.7.3.0"), ("TensorRT-RTX", "tensorrt_rtx", "1.10.3.0")],
)
def test_a_built_program_has_engines_and_no_weights(
    build, check, program, tmp_path, fake, builder, version
):
    output = tmp_path / "built.pte"
    done = build(program, "--engine-folder", "off", "--json", fake=fake)
    assert done.returncode == 0, done.stderr
    (engine,) = json.loads(done.stdout)["engines"]
    assert (engine["builder"], engine["library_version"]) == (builder, version)
    (delegate,) = inspect_file(output).methods[0].delegates
    assert delegate.engine.network is None
    assert delegate.engine.hardware_compatible == (builder == "tensorrt_rtx")
    weight = np.full(512, 3.0, dtype=np.float32).tobytes()
    assert weight in program.path.read_bytes()
    assert weight not in output.read_bytes()
    check(Scale(), "--build", "0", path=output, fake=fake)


def test_an_engine_that_cannot_be_built_is_one_line(build, run, tmp_path):
    builder = FakeNetworkBuilder("refuse /gelu Gelu not today\n")
    program = export(tmp_path, "bad", Scale(), (X,), builder=builder)
    done = build(program)
    assert done.returncode == 1
    reason = "TensorRT 11.7.3 does not take node '/gelu' (Gelu): not today"
    assert f"the engine cannot be built here: {reason}" in done.stderr
    assert not list(tmp_path.glob("built.pte*"))
    done = run(path=program.path)
    assert done.returncode == 1
    assert reason in done.stderr


def test_a_program_without_networks_is_refused(build, tmp_path):
    program = export(tmp_path, "mlp", Mlp(), (torch.randn(2, 8),))
    done = build(program)
    assert done.returncode == 1
    message = "the program has no ONNX networks; export it with builder='onnx'"
    assert f"{program.path}: {message} (on the command line: --builder onnx)" in done.stderr


def test_onnxruntime_builds_no_engines(build, program):
    done = build(program, fake=None)
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


@pytest.fixture(scope="module")
def methods(tmp_path_factory):
    """A program, and its methods.

    `other` and `again` share the first network's weight; the CPU's product is XNNPACK's.
    """
    other = Scale(3.0).eval()
    models = {"forward": Mixed().eval(), "other": other, "again": other}
    partitioners = [
        TensorRTPartitioner(builder=FakeNetworkBuilder(), excluded_ops=("aten.mm.default",)),
        XnnpackPartitioner(),
    ]
    manager = to_edge_transform_and_lower(
        {name: torch.export.export(model, (X,)) for name, model in models.items()},
        partitioner=dict.fromkeys(models, partitioners),
    )
    path = tmp_path_factory.mktemp("methods") / "mixed.pte"
    path.write_bytes(manager.to_executorch().buffer)
    return path, models


def test_methods_share_one_engine_that_is_built_once(methods, run):
    """Without a folder, too: the second method takes the engine that is loaded."""
    done = run("--engine_folder", "off", "--method_name", "other,again", path=methods[0])
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("built an engine of") == 1


def test_other_weights_methods_and_delegates_stay(methods, build, check, tmp_path):
    (path, models), output = methods, tmp_path / "built.pte"
    done = build(path, "--engine-folder", "off")
    assert done.returncode == 0, done.stderr
    # Weights of networks are gone, and the product's is not.
    table = models["forward"].table.nbytes
    assert table < output.stat().st_size < path.stat().st_size
    for name, model in models.items():
        check(model, "--build", "0", "--method_name", name, path=output)


def test_a_copied_engine_folder_serves_a_device_that_must_not_build(run, tmp_path):
    unbuilt = ("--build", "0", "--engine_folder", tmp_path / "shipped")
    refused = run(*unbuilt)
    assert refused.returncode == 1
    assert "load once with build=1" in refused.stderr
    assert run().returncode == 0
    shutil.copytree(tmp_path / "engines", tmp_path / "shipped")
    assert run(*unbuilt).returncode == 0
