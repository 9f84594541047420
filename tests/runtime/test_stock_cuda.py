"""ExecuTorch's own CUDA libraries beside the plugin; a fake library replaces them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import executorch
import pytest

import trt_et.runtime
from tests.support.native_environment import ROOT, environment, run, run_python

PACKAGE = Path(next(iter(executorch.__path__)))
SOURCE = ROOT / "tests/support/stock_cuda_allocator.cpp"
BACKEND, EXTENSION = "libexecutorch_backend_cuda.so", "libexecutorch_extension_cuda.so"
LOAD = """
import ctypes, sys
from pathlib import Path
import trt_et.runtime

runtime = Path(sys.argv[1], "libexecutorch.so")
trt_et.runtime._check_executorch = lambda plugin: runtime
trt_et.runtime.load("simulated")
status = trt_et.runtime.status()
assert status["backend"] and not status["problem"], status
print(status["allocator"])
sys.stdout.flush()
if len(sys.argv) > 2:
    ctypes.CDLL(str(runtime.with_name(sys.argv[2])))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "libexecutorch.so").symlink_to(PACKAGE / "lib" / "libexecutorch.so")
    return tmp_path


def compile_fake(out: Path, *arguments: str | Path) -> Path:
    flags = ["-std=c++17", "-fPIC", "-DC10_USING_CUSTOM_GENERATED_MACROS"]
    include = PACKAGE / "include"
    c10 = include / "executorch/runtime/core/portable_type/c10"
    includes = ["-isystem", include, "-isystem", c10]
    runtime = PACKAGE / "lib" / "libexecutorch.so"
    command = ["c++", *flags, *includes, "-o", out, SOURCE, *arguments, runtime, "-ldl"]
    subprocess.run(command, check=True, timeout=600)
    return out


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    return compile_fake(
        tmp_path_factory.mktemp("fake") / BACKEND, "-shared", f"-Wl,-soname,{BACKEND}"
    )


def load(folder: Path, *later: str) -> subprocess.CompletedProcess[str]:
    variables = {"LD_LIBRARY_PATH": str(PACKAGE / "lib"), "TRT_ET_LOG": "debug"}
    return run_python("-c", LOAD, str(folder), *later, **variables)


@pytest.mark.parametrize("name", [BACKEND, EXTENSION])
def test_the_stock_allocator_comes_first(folder, fake, name):
    (folder / name).symlink_to(fake)
    done = load(folder, name)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert "the CUDA allocator of another library is used" in done.stderr


def test_a_stock_library_that_does_not_load_is_left_out(folder):
    (folder / BACKEND).write_text("needs libcuda.so.1\n")
    done = load(folder)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_the_other_order_would_end_the_process(folder, fake):
    (folder / "later.so").symlink_to(fake)
    done = load(folder, "later.so")
    assert done.stdout == "True\n"
    assert done.returncode < 0, "executorch takes a second allocator: opening it first is needless"


@pytest.mark.parametrize("order", ["fake first", "plugin first", "none"])
def test_programs_that_link_both_start(fake, tmp_path, order):
    """Ours gives way to an allocator that registers later, too."""
    plugin = trt_et.runtime.plugin_path()
    libraries = {
        "fake first": [fake, plugin],
        "plugin first": [plugin, fake],
        "none": [plugin],
    }[order]
    flags = ["-DSTAND_IN_MAIN", "-DWITHOUT_STAND_IN", "-Wl,--no-as-needed"]
    program = compile_fake(tmp_path / "program", *flags, *libraries)
    env = environment(LD_LIBRARY_PATH=f"{PACKAGE / 'lib'}:{plugin.parent}:{fake.parent}")
    done = run(program, env=env)
    assert done.returncode == 0, done.stderr
    status = json.loads(done.stdout)
    assert status["backend"]
    assert status["allocator"] == (order == "none")
