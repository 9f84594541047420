"""Files that were cut off, mixed up or changed where the engine is: an error, never a crash."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from tests.support.native_programs import Mlp, export
from tests.support.python_process import run_forked
from tests.support.reliability.hard_use import span_of_blob
from trt_et.engine_info import decode_blob, encode_blob
from trt_et.inspection import read_program

SEED = 7


def damaged(data: bytes) -> dict[str, bytes]:
    begin, end = span_of_blob(data)
    blob, rest = data[begin:end], data[:begin]
    chance = random.Random(SEED)
    cases = {f"cut at {size}": data[:size] for size in (0, 1, 7, 8, 31, 64, begin, end - 1)}
    for size in chance.sample(range(len(data)), 6):
        cases[f"cut at {size}"] = data[:size]
    for at in chance.sample(range(begin, end), 12):
        cases[f"flip at {at}"] = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
    cases["the blob's halves swapped"] = rest + blob[len(blob) // 2 :] + blob[: len(blob) // 2]
    cases["no blob"] = rest + bytes(len(blob))
    cases["the blob first"] = blob + rest
    cases["only the blob"] = blob
    cases["another file"] = b"\x7fELF" + bytes(1000)
    return {name: case for name, case in cases.items() if case != data}


@pytest.fixture(scope="module")
def cases(programs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    found = {}
    for index, (name, data) in enumerate(damaged(programs["mlp"].path.read_bytes()).items()):
        found[name] = folder / f"{index}.pte"
        found[name].write_bytes(data)
    assert len(found) > 25
    return found


@pytest.mark.reliability("R4")
def test_executor_runner_refuses_them(cases, runner):
    for name, path in cases.items():
        done = runner("--model_path", path, cuda="simulated:1")
        assert done.returncode == 1, (name, done.returncode, done.stderr)
        assert done.stderr, name


@pytest.mark.reliability("R4")
def test_the_python_runtime_refuses_them_and_goes_on(cases, programs, stock):
    inputs = programs["mlp"].inputs
    jobs = [{"program": str(path), "inputs": inputs} for path in cases.values()]
    intact = {"program": str(programs["mlp"].path), "inputs": inputs}
    *refused, last = stock(*jobs, intact, TRT_ET_CUDA="simulated:1")["results"]
    for name, result in zip(cases, refused, strict=True):
        assert "error" in result, name
    assert "error" not in last


def test_an_output_for_debugging_takes_no_memory_before_it_is_written(tmp_path):
    from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary

    batch = ({0: torch.export.Dim("batch", min=1, max=8)},)
    data = export(tmp_path, "m", Mlp(), (torch.ones(2, 8),), dynamic=batch).path.read_bytes()
    blob = decode_blob(bytes(read_program(data).methods[0].delegates[0].blob))
    bindings = tuple(
        one if one.is_input else replace(one, value_of="x", max_shape=(2**26, 4))
        for one in blob.info.bindings
    )
    file = deserialize_pte_binary(data)
    large = encode_blob(bytes(blob.engine), replace(blob.info, bindings=bindings))
    file.program.backend_delegate_data[0].data = large
    (tmp_path / "large.pte").write_bytes(bytes(serialize_pte_binary(file)))
    code = """
import resource
import trt_et.runtime
from executorch.runtime import Runtime
trt_et.runtime.load("simulated:1")
def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = used()
try:
    Runtime.get().load_program("large.pte").load_method("forward")
except RuntimeError:
    pass
print((used() - before) // 1024)
"""
    done = run_forked(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100  # MB, of an output of 1,024
