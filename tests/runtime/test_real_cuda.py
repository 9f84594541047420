"""The path of real CUDA, as far as it can be walked without a GPU: on a fake driver."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.support.fake_tensorrt import FakeBuilder, Line
from tests.support.native_environment import environment
from tests.support.native_environment import run as run_command
from tests.support.native_programs import ForeignBuilder, Mlp, export
from tests.support.python_process import run_forked


@pytest.fixture
def run(runner, fake_cuda):
    """What the runner says when it refuses a program."""

    def start(program, **more):
        driver = {
            "LD_LIBRARY_PATH": str(fake_cuda),
            "TRT_ET_CUDART_LIBRARY": str(fake_cuda / "libcuda.so.1"),
        }
        done = runner("--model_path", program.path, cuda="real", **(driver | more))
        assert done.returncode == 1
        return str(done.stderr)

    return start


@pytest.mark.parametrize(
    ("name", "variables", "reason"),
    [
        ("mlp", {}, "reference engines run on simulated GPUs only: set TRT_ET_CUDA=simulated:N"),
        ("mlp_on_3", {}, "memory is planned on cuda:3 but this machine has 2 GPU(s)"),
        ("foreign", {"FAKE_CUDA_NO_GPU": "1"}, "cuInit failed with error 100 (no GPU)"),
        (
            "foreign",
            {"TRT_ET_TENSORRT_LIBRARY": "/nowhere.so"},
            "TRT_ET_TENSORRT_LIBRARY does not load: /nowhere.so",
        ),
        (
            "foreign",
            {"TRT_ET_CUDART_LIBRARY": "/nowhere.so"},
            "TRT_ET_CUDART_LIBRARY names a library that does not load: /nowhere.so",
        ),
        (
            "foreign",
            {"TRT_ET_CUDART_LIBRARY": "libm.so.6"},
            "the CUDA runtime or driver has no cudaGetDeviceCount, which CUDA 12 and 13",
        ),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(run, programs, name, variables, reason):
    assert reason in run(programs[name], **variables)


@pytest.mark.parametrize(
    ("driver", "runtimes", "reason"),
    [
        ("13000", [12, 13], "reference engines run on simulated GPUs only"),
        ("12040", [12, 13], "reference engines run on simulated GPUs only"),
        ("12040", [13], "no CUDA runtime for this driver, which supports CUDA up to 12.4"),
    ],
)
def test_the_cuda_runtime_is_one_that_the_driver_supports(
    run, programs, fake_cuda, driver, runtimes, reason
):
    path = ":".join([str(fake_cuda), *(str(fake_cuda / str(major)) for major in runtimes)])
    variables = {"LD_LIBRARY_PATH": path, "FAKE_DRIVER_VERSION": driver}
    variables |= {"TRT_ET_CUDART_LIBRARY": None}  # It is searched.
    assert reason in run(programs["mlp"], **variables)


def test_a_named_cuda_runtime_that_the_driver_does_not_support(run, programs, fake_cuda):
    named = str(fake_cuda / "13" / "libcudart.so.13")
    found = run(programs["mlp"], TRT_ET_CUDART_LIBRARY=named, FAKE_DRIVER_VERSION="12040")
    assert "TRT_ET_CUDART_LIBRARY is CUDA 13.0, and the driver supports CUDA up to 12.4" in found


def test_a_tensorrt_that_is_there_and_does_not_load_is_named(run, fake_cuda, tmp_path):
    broken = tmp_path / "libnvinfer.so.11"
    broken.write_text("cut off in the download")
    builder = ForeignBuilder("tensorrt", "11.7.3")
    program = export(tmp_path, "enterprise", Mlp(), (torch.ones(2, 8),), builder=builder)
    found = run(program, LD_LIBRARY_PATH=f"{fake_cuda}:{tmp_path}")
    assert f"TensorRT 11 does not load: {broken}: file too short" in found


def test_the_cuda_runtime_is_found_beside_executorch(programs, fake_cuda, tmp_path):
    """As pip installs it, also where this package lies somewhere else."""
    import executorch

    import trt_et.runtime

    (package,) = executorch.__path__
    site, tree = tmp_path / "site-packages", tmp_path / "tree" / "trt_et" / "runtime"
    shutil.copytree(Path(package) / "lib", site / "executorch" / "lib")
    for folder in (trt_et.runtime.plugin_path().parent, trt_et.runtime.runner_path().parent):
        shutil.copytree(folder, tree / folder.name)

    # The loader without its cache, where a CUDA toolkit may be.
    loader = next(Path("/").glob("lib*/ld-linux-*.so.*"))
    command = [loader, "--inhibit-cache", tree / "bin" / "executor_runner", "--model_path"]

    def reason():
        libraries = f"{site / 'executorch' / 'lib'}:{fake_cuda}"
        env = environment(LD_LIBRARY_PATH=libraries)
        done = run_command(*command, programs["mlp"].path, env=env)
        assert done.returncode == 1
        return done.stderr

    if not any(Path("/usr/local").glob("cuda*")):  # A toolkit is found, too.
        assert "no CUDA runtime (libcudart.so.13 or .12 not found)" in reason()
    wheel = site / "nvidia" / "cu13" / "lib"
    wheel.mkdir(parents=True)
    shutil.copy(fake_cuda / "libcuda.so.1", wheel / "libcudart.so.13")
    assert "reference engines run on simulated GPUs only" in reason()


FORKS = """
import ctypes, multiprocessing, os, signal, sys, threading
import torch
import trt_et.runtime
ctypes.CDLL(sys.argv[2])
trt_et.runtime.load("real")
from executorch.runtime import Runtime
x = torch.ones(3, 8)
method = Runtime.get().load_program(sys.argv[1]).load_method("forward")

def is_right():
    return bool((method.execute([x])[0] == 3).all())

def refused():
    signal.alarm(60)
    try:
        method.execute([x])
    except RuntimeError:
        assert "CUDA was in use when this process was forked" in trt_et.runtime.last_error()
        assert not trt_et.runtime.is_available() and trt_et.runtime.device_count() == 0
        return True

def leaves(): refused() and os._exit(3)
def exits(): refused() and sys.exit(4)
def fails(): refused() and 1 / 0
def drops():
    global method
    assert refused()
    del method
def forks_again(): refused() and sys.exit(status_of(leaves))

def status_of(target, daemon=None):
    child = multiprocessing.get_context("fork").Process(target=target, daemon=daemon)
    child.start()
    child.join()
    return child.exitcode

statuses = [status_of(target) for target in (leaves, exits, fails, drops, forks_again)]
statuses.append(status_of(exits, daemon=True))
thread = threading.Thread(target=lambda: statuses.append(status_of(exits)))
thread.start()
thread.join()
print(is_right(), statuses)
"""


def test_children_of_multiprocessing_are_refused_however_they_end(
    fake_cuda, fake_tensorrt, tmp_path
):
    path = export(tmp_path, "line", Line(), (torch.ones(3, 8),), builder=FakeBuilder()).path
    driver = str(fake_cuda / "libcuda.so.1")
    env = environment(TRT_ET_CUDART_LIBRARY=driver, **fake_tensorrt)
    done = run_forked(FORKS, str(path), driver, cwd=tmp_path, env=env)
    assert done.stdout == "True [3, 4, 1, 0, 3, 4, 4]\n", done.stderr
