"""Simulated GPUs are a library of their own, which is opened when it is asked for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.native_environment import run_python

LIBRARY = "libtrt_et_simulation.so"


def python(code: str, folder: Path, **env: str) -> str:
    done = run_python(
        "-c",
        f"import os\nimport trt_et.runtime as r\n{code}\nprint('fine')",
        folder=folder,
        **env,
    )
    assert done.returncode == 0, done.stderr
    assert "fine" in done.stdout
    return done.stderr


def test_it_is_opened_only_when_asked_for(tmp_path):
    code = f"""
def opened():
    return "{LIBRARY}" in open("/proc/self/maps").read()
r.load()
assert not r.is_available() and not opened()
r.load(cuda="simulated:3")
assert r.device_count() == 3 and opened()
"""
    python(code, tmp_path)


def test_auto_simulates_where_there_is_no_gpu(tmp_path):
    code = """
assert not r.is_available() and r.status()["cuda"] == "real"
r.load(cuda="auto:2")
assert r.status()["cuda"] == "simulated:2" and r.device_count() == 2 and r.is_available()
r.load(cuda="auto")
r.load(cuda="simulated:2")
try:
    r.load(cuda="real")
except r.PluginError as error:
    assert "CUDA is already 'simulated:2'" in str(error)
else:
    raise AssertionError("real GPUs in place of simulated ones")
"""
    log = python(code, tmp_path)
    assert "simulated GPUs are used: no NVIDIA driver" in log


def test_gpus_that_nobody_asked_for_serve_who_asks_for_simulated_ones_and_not_for_real_ones(
    programs, tmp_path
):
    code = f"""
r.load_program({str(programs["mlp"].path)!r}).load_method("forward")
r.load(cuda="simulated:2")
r.load(cuda="auto")
assert r.status()["cuda"] == "simulated:16" and r.device_count() == 16
try:
    r.load(cuda="real")
except r.PluginError as error:
    assert "CUDA is already 'simulated:16'" in str(error)
else:
    raise AssertionError("real GPUs in place of simulated ones")
"""
    assert python(code, tmp_path).count("simulated GPUs are used: no NVIDIA driver") == 1


def test_auto_from_the_environment(tmp_path):
    python('assert r.device_count() == 4\nr.load(cuda="auto")', tmp_path, TRT_ET_CUDA="auto:4")


def test_auto_takes_real_gpus_where_there_are(tmp_path, fake_cuda):
    code = """
r.load(cuda="auto:5")
assert r.status()["cuda"] == "real" and r.device_count() == 2
"""
    library = str(fake_cuda / "libcuda.so.1")
    python(code, tmp_path, LD_LIBRARY_PATH=str(fake_cuda), TRT_ET_CUDART_LIBRARY=library)


def test_a_choice_without_a_gpu_can_be_tried_again(tmp_path):
    code = """
for _ in range(3):
    try:
        r.load(cuda="real")
    except r.PluginError as error:
        assert "no NVIDIA driver" in str(error)
    else:
        raise AssertionError("loaded")
    assert not r.is_available() and "no NVIDIA driver" in r.last_error()
os.environ["TRT_ET_PLUGIN"] = ""
r.load(cuda="simulated")
assert r.is_available()
"""
    python(code, tmp_path)


def test_a_choice_after_the_first_question_gives_as_many_gpus_as_it_says(programs, tmp_path):
    path = str(programs["mlp"].path)
    code = f"""
from executorch.runtime import Runtime
r.load()
Runtime.get().backend_registry.is_available("TensorRTBackend")  # With 16 GPUs.
r.load(cuda="simulated:2")
assert r.device_count() == 2 and r.status()["cuda"] == "simulated:2"
r.set_option("device", "5")
try:
    Runtime.get().load_program({path!r}).load_method("forward")
except RuntimeError:
    assert "cuda:5 but this machine has 2 GPU(s)" in r.last_error(), r.last_error()
else:
    raise AssertionError("loaded")
"""
    python(code, tmp_path)


@pytest.fixture
def moved(tmp_path):
    """A copy of the plugin, without the library of simulated GPUs."""
    import trt_et.runtime

    folder = tmp_path / "lib"
    folder.mkdir()
    for name in ("libtrt_et_backend.so", "build_info.json"):
        shutil.copy(trt_et.runtime.plugin_path().with_name(name), folder)
    return folder


@pytest.mark.parametrize("mode", ["simulated:1", "auto"])
def test_a_missing_library_is_named(moved, mode):
    code = f"""
try:
    r.load(cuda="{mode}")
    assert not r.is_available()
    error = r.last_error()
except r.PluginError as raised:
    error = str(raised)
assert "simulated GPUs need {LIBRARY} next to the plugin" in error, error
"""
    python(code, moved, TRT_ET_PLUGIN=str(moved / "libtrt_et_backend.so"))


def test_a_library_of_another_version_is_refused(moved):
    source = """
static struct { const char* version; void* rest[4]; } simulation = {"9.9.9", {0}};
void* trt_et_open_simulation(int devices) { (void)devices; return &simulation; }
"""
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(moved / LIBRARY)]
    subprocess.run(command, input=source, text=True, check=True, timeout=600)
    code = """
r.load(cuda="simulated:1")
assert not r.is_available()
assert "is of trt-et 9.9.9, the plugin of" in r.last_error(), r.last_error()
"""
    python(code, moved, TRT_ET_PLUGIN=str(moved / "libtrt_et_backend.so"))
