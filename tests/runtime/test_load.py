"""What ``load`` and ``status`` say where no GPU can be used."""

from __future__ import annotations

from tests.support.python_process import run_forked

NO_DRIVER = "no NVIDIA driver (libcuda.so.1 not found)"
REAL = """
import trt_et.runtime
from trt_et.errors import PluginError
try:
    trt_et.runtime.load("real")
except PluginError as error:
    print(error)
print(trt_et.runtime.status()["problem"])
trt_et.runtime.load("simulated")
print(trt_et.runtime.status()["problem"] or "none", trt_et.runtime.is_available())
"""
LATER = """
import trt_et.runtime
trt_et.runtime.load()
assert not trt_et.runtime.status()["problem"]
assert not trt_et.runtime.is_available()
print(trt_et.runtime.status()["problem"])
"""


def test_real_gpus_that_are_not_there_are_refused_at_once(tmp_path):
    done = run_forked(REAL, cwd=tmp_path)
    assert done.stdout.splitlines() == [NO_DRIVER, NO_DRIVER, "none True"], done.stderr


def test_the_status_has_the_problem_of_the_first_use(tmp_path):
    done = run_forked(LATER, cwd=tmp_path)
    assert done.stdout.splitlines() == [NO_DRIVER], done.stderr
