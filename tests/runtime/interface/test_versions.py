"""A library is asked for its version, and nothing is called that its version does not have."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.fake_tensorrt import FakeBuilder, Line
from tests.support.native_programs import export

# A library of TensorRT as far as a provider asks before it trusts it.
LIBRARY = """
#include <stdlib.h>
int getInferLibVersion(void) { return VERSION; }
void* createInferRuntime_INTERNAL(void* logger, int version) { exit(77); }
void trt_et_fake_tensorrt_attach(const void* services) {}
"""
STARTED = 77
# Of each provider: the version of the engines, and the fake.
VERSIONS = {
    "10": ("10.9.0", "libfake_nvinfer_10.so"),
    "11": ("11.7.3", "libfake_nvinfer.so"),
    "rtx": ("1.7.1", "libfake_tensorrt_rtx.so"),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """One program for each provider."""

    def make(which: str, **options):
        version, _ = VERSIONS[which]
        builder = FakeBuilder(version=version, streamable=512 if which == "10" else 0)
        builder.name = "tensorrt_rtx" if which == "rtx" else "tensorrt"
        folder = tmp_path_factory.mktemp(which)
        return export(folder, "line", Line(), (torch.ones(3, 8),), builder=builder, **options)

    batch = {0: torch.export.Dim("batch", min=1, max=3)}
    return {which: make(which) for which in VERSIONS} | {
        "rtx dynamic": make("rtx", dynamic=(batch,))
    }


@pytest.fixture
def run(runner):
    def start(program, library: Path, *flags: object, cuda: str = "simulated:1", **variables: str):
        return runner(
            *("--model_path", program.path, *flags),
            cuda=cuda,
            statuses=(0, 1, STARTED),
            TRT_ET_LOG="debug",
            TRT_ET_TENSORRT_LIBRARY=str(library),
            TRT_ET_RUNTIME_CACHE="off",
            **variables,
        )

    return start


def library_of(folder: Path, version: int) -> Path:
    source, library = folder / "library.c", folder / f"lib{version}.so"
    source.write_text(LIBRARY.replace("VERSION", str(version)))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    return library


@pytest.mark.parametrize(
    ("which", "number", "reason"),
    [
        ("rtx", 10400, "TensorRT-RTX 1.4.0 has an unknown interface (known: 1.5 to 1.7 and later"),
        ("rtx", 20000, "TensorRT-RTX 2.0.0 has an unknown interface"),
        ("11", 120000, "TensorRT 12.0.0 has an unknown interface (known: 11.0 to 11.4 and later"),
        ("11", 101600, "TensorRT 10.16.0 has an unknown interface"),
        ("10", 120000, "TensorRT 12.0.0 has an unknown interface (known: 10.0 to 10.16 and later"),
    ],
)
def test_an_unknown_interface_is_refused_unless_it_is_asked_for(
    run, programs, tmp_path, which, number, reason
):
    library = library_of(tmp_path, number)
    done = run(programs[which], library)
    assert done.returncode == 1
    assert reason in done.stderr
    assert "TRT_ET_ANY_TENSORRT=1" in done.stderr
    assert run(programs[which], library, TRT_ET_ANY_TENSORRT="1").returncode == STARTED


@pytest.mark.parametrize(
    ("which", "number"), [("rtx", 10500), ("rtx", 11200), ("11", 110900), ("10", 100000)]
)
def test_newer_minors_of_a_known_major_are_started(run, programs, tmp_path, which, number):
    assert run(programs[which], library_of(tmp_path, number)).returncode == STARTED


def test_tensorrt_11_is_started_for_an_engine_of_10(run, programs, tmp_path):
    """Version-compatible engines run there."""
    assert run(programs["10"], library_of(tmp_path, 110100)).returncode == STARTED


@pytest.mark.parametrize("version", ["10.0.1", "10.9.0", "10.14.1", "10.16.1"])
def test_nothing_beyond_an_older_librarys_tables_is_called(run, programs, fakes, version):
    """The fake ends the process at a slot that its version does not have."""
    library = fakes / "libfake_nvinfer_10.so"
    flags = (
        [] if version == "10.0.1" else ["--shared_device_memory=1", "--weight_streaming_budget=512"]
    )
    done = run(programs["10"], library, *flags, TRT_ET_FAKE_VERSION=version)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("flag", ["--shared_device_memory=1", "--weight_streaming_budget=auto"])
def test_what_an_older_library_lacks_is_refused(run, programs, fakes, flag):
    library = fakes / "libfake_nvinfer_10.so"
    done = run(programs["10"], library, flag, TRT_ET_FAKE_VERSION="10.0.1")
    assert done.returncode == 1, done.stderr
    assert "needs TensorRT 10.1 or later" in done.stderr


@pytest.mark.parametrize("name", ["rtx", "rtx dynamic"])
def test_graphs_are_of_engines_whose_kernels_stay(run, programs, fakes, tmp_path, name):
    """TensorRT-RTX runs fallback kernels of a new dynamic shape until it has compiled others."""
    trace = tmp_path / "trace.etdump"
    flags = ["--num_executions", "6", "--etdump_path", str(trace)]
    done = run(programs[name], fakes / "libfake_tensorrt_rtx.so", *flags)
    assert done.returncode == 0, done.stderr
    dynamic = name == "rtx dynamic"
    refused = "it runs plainly: TensorRT-RTX records graphs of dynamic shapes itself"
    assert (refused in done.stderr) == dynamic
    assert (b"launch graph" in trace.read_bytes()) == (not dynamic)


@pytest.mark.parametrize("which", VERSIONS)
def test_engines_run_on_a_driver(run, programs, fakes, fake_cuda, tmp_path, which):
    """As on a machine with a GPU, down to the interfaces of CUDA and TensorRT, which are fakes."""
    program, library = programs[which], VERSIONS[which][1]
    inputs = ",".join(map(str, program.input_files()))
    done = run(
        *(program, fakes / library, "--inputs", inputs, "--output_file", str(tmp_path / "out")),
        cuda="real",
        LD_LIBRARY_PATH=str(fake_cuda),
        TRT_ET_CUDART_LIBRARY=str(fake_cuda / "libcuda.so.1"),
    )
    assert done.returncode == 0, done.stderr
    assert "loaded a TensorRT" in done.stderr
    found = np.fromfile(tmp_path / "out-0.bin", dtype=np.float32)
    np.testing.assert_allclose(found, program.outputs[0].numpy().flatten(), rtol=1e-6)
