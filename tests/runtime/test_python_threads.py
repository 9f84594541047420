"""Python threads that use the stock runtime at the same time."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import pytest

import trt_et.runtime
from tests.support.native_environment import environment
from tests.support.python_process import run_forked
from tests.support.simulated_gpus import load_runtime


@pytest.mark.reliability("R7")
@pytest.mark.parametrize("kind", ["load", "first use", "load and run"])
def test_threads_that_share_the_runtime_come_to_an_end(programs, tmp_path, kind):
    path = str(programs["mlp"].path)
    code = "import runpy; runpy.run_module('tests.support.run_python_threads', run_name='__main__')"
    done = run_forked(code, path, kind, cwd=tmp_path, env=environment(OMP_NUM_THREADS="1"))
    assert set(done.stdout.strip().split(",")) == {"0"}, done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize(("level", "lines"), [(None, 0), ("debug", 1)])
def test_a_load_and_a_run_log_nothing_by_default(programs, runner, level, lines):
    done = runner("--model_path", programs["mlp"].path, cuda="simulated", TRT_ET_LOG=level)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("loaded a reference engine") == lines
    assert ("TensorRTBackend" in done.stderr) == bool(lines)


def test_the_last_error_is_of_this_threads_last_call(plugin):
    load_runtime()
    assert plugin.trt_et_choose_cuda(b"nonsense") == -1
    assert "TRT_ET_CUDA is 'nonsense'" in trt_et.runtime.last_error()
    with ThreadPoolExecutor(1) as other:
        assert other.submit(trt_et.runtime.last_error).result() == ""
        assert other.submit(plugin.trt_et_device_count).result() == 2
    assert "TRT_ET_CUDA is 'nonsense'" in trt_et.runtime.last_error()
    assert plugin.trt_et_device_count() == 2
    assert trt_et.runtime.last_error() == ""
    assert plugin.trt_et_counter(b"nonsense", ctypes.byref(ctypes.c_uint64())) == -1
    assert "there is no such counter" in trt_et.runtime.last_error()
    assert plugin.trt_et_counter(b"engines", ctypes.byref(ctypes.c_uint64())) == 0
    assert trt_et.runtime.last_error() == ""
