"""Python threads that use the stock runtime at the same time."""

from __future__ import annotations

import ctypes
import json
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


@pytest.mark.parametrize("share", [(), ("share",)], ids=["own methods", "one method"])
def test_threads_serve_right_and_refuse_wrong_requests(programs, tmp_path, share):
    """ExecuTorch logs each refusal through a stream that its bindings replace in each call."""
    module = "tests.support.run_serving_threads"
    code = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    path = programs["dynamic_host"].path
    done = run_forked(code, path, 1, *share, cwd=tmp_path, env=environment(OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["alive"] == 0
    assert found["counts"].keys() == {"right", "refused"}, found["counts"]
    assert min(found["counts"].values()) > 50
    assert found["grown_bytes"] < 16 << 20
    assert (found["during"]["partitions"] == 1) == bool(share)
    assert found["after"]["partitions"] == 1


HELD = """
import sys
import threading
import torch
import trt_et.runtime
import trt_et.runtime.explain as explain
from concurrent.futures import ThreadPoolExecutor

program = trt_et.runtime.load_program(sys.argv[1], cuda="simulated:1")
method = program.load_method("forward")
explain._PATIENCE_S = 1
held, end = threading.Event(), threading.Event()

def hold():
    with trt_et.runtime.executorch_lock:
        held.set()
        end.wait(60)

thread = threading.Thread(target=hold)
thread.start()
held.wait(60)
calls = (lambda: method.execute([torch.ones(2, 8)]), lambda: method.metadata.num_inputs(),
         lambda: program.load_method("forward"), lambda: program.metadata("forward"),
         lambda: trt_et.runtime.load_program(sys.argv[1]))
with ThreadPoolExecutor(len(calls)) as pool:
    for future in [pool.submit(call) for call in calls]:
        print(future.exception())
end.set()
thread.join()
with trt_et.runtime.executorch_lock:  # Code that holds it may call.
    print(method.execute([torch.ones(2, 8)])[0].shape)
print(method.metadata)
print(method.metadata.input_tensor_meta(index=0).sizes())
"""


def test_no_call_waits_for_the_lock_without_a_limit(programs, tmp_path):
    done = run_forked(HELD, programs["dynamic_host"].path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *refused, shape, metadata, sizes = done.stdout.splitlines()
    assert len(refused) == 5
    assert all("for 1 s: a call of executorch.runtime, or" in line for line in refused)
    assert (shape, sizes) == ("torch.Size([2, 4])", "(8, 8)")
    assert metadata.startswith("MethodMeta(name='forward', num_inputs=1")


def test_the_counters_follow_loads_and_runs(programs, tmp_path):
    code = """
import json
import sys
import torch
import trt_et.runtime
print(json.dumps(trt_et.runtime.counters()))
method = trt_et.runtime.load_program(sys.argv[1], cuda="simulated:2").load_method("forward")
print(json.dumps(trt_et.runtime.counters()))
method.execute([torch.ones(5, 8)])
print(json.dumps(trt_et.runtime.counters()))
del method
print(json.dumps(trt_et.runtime.counters()))
"""
    done = run_forked(code, programs["dynamic_host"].path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    unused, loaded, run, freed = map(json.loads, done.stdout.splitlines())
    assert not any(unused.values())
    assert "copies_h2d" not in unused  # The GPUs are not chosen yet.
    assert (loaded["engines"], loaded["partitions"], loaded["contexts"]) == (1, 1, 1)
    assert loaded["engine_bytes"] > 4 * (8 * 16 + 16 * 4)
    assert loaded["staging_bytes"] == loaded["live_bytes"] >= 4 * 8 * (8 + 4)
    assert run["bytes_h2d"] - loaded["bytes_h2d"] == 4 * 5 * 8
    assert run["bytes_d2h"] - loaded["bytes_d2h"] == 4 * 5 * 4
    assert run["launches"] - loaded["launches"] == 1
    assert (freed["engines"], freed["engine_loads"], freed["live_bytes"]) == (0, 1, 0)


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
