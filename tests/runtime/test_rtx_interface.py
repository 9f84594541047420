"""The native loader for TensorRT-RTX, whose interface changes within a major."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from tests.support.fake_tensorrt import FakeBuilder, Line
from tests.support.native_environment import ROOT, build, environment
from tests.support.native_programs import export

# A library of TensorRT-RTX as far as the loader asks before it trusts it.
LIBRARY = """
#include <stdlib.h>
int getInferLibVersion(void) { return VERSION; }
void* createInferRuntime_INTERNAL(void* logger, int version) { exit(77); }
void trt_et_fake_tensorrt_attach(const void* services) {}
"""
STARTED = 77
HEADERS = ROOT / "tests" / "runtime" / "tensorrt_fake" / "include"


def build_loader(folder: Path, headers: Path, major: int) -> Path:
    """The folder of the loader for TensorRT-RTX that is compiled with these headers."""
    name = f"trt_et_tensorrt_rtx_{major}"
    build(folder / "build", [name], f"-DTENSORRT_RTX_INCLUDE_DIR={headers}")
    return next((folder / "build").rglob(f"lib{name}.so")).parent


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A loader that was compiled with the headers of TensorRT-RTX 1.4."""
    folder = tmp_path_factory.mktemp("loader")
    headers = folder / "include"
    shutil.copytree(HEADERS, headers)
    version = headers / "NvInferVersion.h"
    text = version.read_text()
    for name, value in (("MAJOR", 1), ("MINOR", 4), ("PATCH", 0)):
        text = re.sub(rf"(NV_TENSORRT_{name}) \d+", rf"\1 {value}", text)
    version.write_text(text)
    return build_loader(folder, headers, 1)


@pytest.fixture(scope="module")
def fake_loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A loader that takes the fake of TensorRT for TensorRT-RTX."""
    return build_loader(tmp_path_factory.mktemp("fake_loader"), HEADERS, 11)


def run(loader: Path, folder: Path, version: int) -> subprocess.CompletedProcess[str]:
    """Run an engine of TensorRT-RTX with a library of such a version."""
    import trt_et.runtime

    source, library = folder / "library.c", folder / f"lib{version}.so"
    source.write_text(LIBRARY.replace("VERSION", str(version)))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=600)
    builder = FakeBuilder(version="1.5.0.114")
    builder.name = "tensorrt_rtx"
    program = export(folder, "line", Line(), (torch.ones(3, 8),), builder=builder)
    return subprocess.run(
        [str(trt_et.runtime.runner_path()), "--model_path", str(program.path)],
        env=environment(
            TRT_ET_CUDA="simulated:1",
            TRT_ET_PROVIDER_PATH=str(loader),
            TRT_ET_TENSORRT_LIBRARY=str(library),
        ),
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize("version", [10500, 10700])
def test_a_library_with_another_interface_is_refused_before_it_is_called(loader, tmp_path, version):
    done = run(loader, tmp_path, version)
    assert done.returncode == 1
    named = f"1.{version // 100 % 100}.0"
    assert f"TensorRT-RTX {named} has another interface than the headers of 1.4" in done.stderr


def test_a_library_with_the_same_interface_is_started(loader, tmp_path):
    assert run(loader, tmp_path, 10300).returncode == STARTED


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_graphs_are_of_engines_whose_kernels_stay(fake_loader, fake_tensorrt, tmp_path, dynamic):
    """TensorRT-RTX runs fallback kernels of a new dynamic shape until it has compiled others."""
    import trt_et.runtime

    builder = FakeBuilder()
    builder.name = "tensorrt_rtx"
    batch = {"dynamic": ({0: torch.export.Dim("batch", min=1, max=3)},)} if dynamic else {}
    program = export(tmp_path, "line", Line(), (torch.ones(3, 8),), builder=builder, **batch)
    variables = fake_tensorrt | {"TRT_ET_PROVIDER_PATH": str(fake_loader)}
    trace = tmp_path / "trace.etdump"
    command = [str(trt_et.runtime.runner_path()), "--model_path", str(program.path)]
    command += ["--num_executions", "6", "--etdump_path", str(trace)]
    done = subprocess.run(
        command,
        env=environment(TRT_ET_CUDA="simulated:1", **variables),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    refused = "it runs plainly: a graph would keep the first kernels of dynamic shapes"
    assert (refused in done.stderr) == dynamic
    assert (b"launch graph" in trace.read_bytes()) == (not dynamic)
