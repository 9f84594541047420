"""Onnxruntime's C interface, as functions.def describes it, under loads and runs of programs.

Results and refusals are in ``test_onnx_payloads.py``; here is what they do not show.
"""

from __future__ import annotations

import json

import pytest
import torch

from tests.support.native_environment import environment
from tests.support.native_programs import Mlp, export
from tests.support.python_process import run_forked

# mallinfo2 of glibc: the eighth field counts the bytes in use.
CODE = """
import ctypes, json, os, sys, torch, trt_et.runtime
from executorch.runtime import Runtime

class HeapFacts(ctypes.Structure):
    _fields_ = [(f"field{index}", ctypes.c_size_t) for index in range(10)]

tell = ctypes.CDLL(None).mallinfo2
tell.restype = HeapFacts

def left_by(call, repeats=200):
    for _ in range(20):
        call()
    before = tell().field7
    for _ in range(repeats):
        call()
    return (tell().field7 - before) / repeats

def threads():
    return len(os.listdir("/proc/self/task"))

trt_et.runtime.load()
first, second = (Runtime.get().load_program(path) for path in sys.argv[1:])
inputs = [torch.ones(2, 8)]
kept = first.load_method("forward")
kept.execute(inputs)
before = threads()
method = second.load_method("forward")
method.execute(inputs)
facts = {"threads": threads() - before, "run": left_by(lambda: method.execute(inputs))}
del method  # Two methods would share a session.
facts["load"] = left_by(lambda: second.load_method("forward"))
print(json.dumps(facts))
"""


def test_a_session_starts_no_threads_and_leaves_no_memory(tmp_path):
    pytest.importorskip("onnxruntime")
    paths = [
        export(tmp_path, name, Mlp(), (torch.ones(2, 8),), builder="onnx", host=True).path
        for name in ("first", "second")
    ]
    variables = environment(TRT_ET_CUDA="simulated:1")
    done = run_forked(CODE, *paths, cwd=tmp_path, env=variables)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["threads"] == 0
    # A session's caches move the count by some bytes.
    assert facts["run"] < 16, facts
    assert facts["load"] < 200, facts
