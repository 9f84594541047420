"""Question 3: what does a call cost beside the bare API, and what memory do methods share?"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

TIMED = ["line", "deep", "pair"]

MEMORY = """
import ctypes, json, os, sys, torch, trt_et.runtime
trt_et.runtime.load()
from executorch.runtime import Runtime
from trt_et.runtime.counters import read_counter

def used():
    if os.environ["TRT_ET_CUDA"] != "real":
        return read_counter("live_bytes") or 0
    cuda = ctypes.CDLL(os.environ.get("TRT_ET_CUDART_LIBRARY", "libcudart.so.13"))
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cudaDeviceSynchronize() == 0
    assert cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value - free.value

runtime, kept, found, before = Runtime.get(), [], [], used()
for _ in range(4):
    program = runtime.load_program(sys.argv[1])
    method = program.load_method("forward")
    info = method.metadata
    sizes = [info.input_tensor_meta(i).sizes() for i in range(info.num_inputs())]
    method.execute([torch.ones(size) for size in sizes])
    kept.append((program, method))
    found.append(used() - before)
print(json.dumps(found))
"""


def program(setup, name: str, suffix: str = "") -> Path:
    return Path(setup.engines) / f"{name}.{setup.engines_builder}{suffix}.pte"


def tensors(setup, name: str) -> list[str]:
    sizes = json.loads((Path(setup.engines) / f"{name}.tensors.json").read_text())
    return [f"{tensor}={size}" for tensor, size in sizes.items()]


@pytest.mark.parametrize("name", TIMED)
def test_a_call_is_timed_beside_the_bare_api(name, setup, probe, record):
    engine = Path(setup.engines) / f"{name}.engine"
    rounds = 3 if setup.is_rehearsal else 100
    arguments = ["costs", program(setup, name, "_device"), engine, setup.library, rounds]
    arguments += tensors(setup, name)
    graphs, plain = (probe(*arguments, TRT_ET_CUDA_GRAPHS=value) for value in "10")
    ratios = {
        "P13_us_over_bare": plain["delegate_queued"] - plain["bare_queued"],
        "P13_over_bare": plain["delegate_queued"] / plain["bare_queued"],
        "P15_graph_over_plain": graphs["delegate_queued"] / graphs["bare_queued"],
    }
    if "bare_graph_queued" in graphs:  # TensorRT cannot capture every engine.
        ratios["P15_bare_graph_over_plain"] = graphs["bare_graph_queued"] / graphs["bare_queued"]
    record({"us_with_graphs": graphs, "us_without_graphs": plain, "ratios": ratios})
    assert all(value > 0 for value in (*graphs.values(), *plain.values()))


def test_methods_of_one_program_share_its_engine(setup, record):
    pytest.importorskip("executorch.runtime")
    done = setup.run(sys.executable, "-c", MEMORY, program(setup, "deep"))
    assert done.returncode == 0, done.stderr[-1500:]
    used = json.loads(done.stdout.splitlines()[-1])
    record({"bytes_of_1_to_4_methods": used})
    assert used[3] < 4 * used[0]
