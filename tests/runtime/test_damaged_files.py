"""Files that were cut off, mixed up or changed where the engine is: an error, never a crash."""

from __future__ import annotations

import random

import pytest

from tests.support.reliability.hard_use import span_of_blob

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
