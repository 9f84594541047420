"""Programs in the stock Python runtime, on simulated GPUs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from native_blobs import patch_program

Stock = Callable[..., dict[str, Any]]


def job(program: Any, **more: Any) -> dict[str, Any]:
    return {"program": str(program.path), "inputs": program.inputs, **more}


def check_outputs(result: dict[str, Any], program: Any) -> None:
    assert "error" not in result, result
    assert len(result["outputs"]) == len(program.outputs)
    for found, expected in zip(result["outputs"], program.outputs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_every_program_agrees_with_eager_on_two_gpus(
    programs: dict[str, Any], stock: Stock
) -> None:
    names = [
        "mlp",
        "mlp_on_1",
        "host",
        "two",
        "two_host",
        "many",
        "dynamic",
        "dynamic_host",
        "channels_last",
    ]
    facts = stock(*(job(programs[name], repeat=3) for name in names), TRT_ET_CUDA="simulated:2")
    for name, result in zip(names, facts["results"], strict=True):
        check_outputs(result, programs[name])
    assert facts["status"]["backend"]
    assert facts["status"]["allocator"]
    assert facts["status"]["cuda"] == "simulated:2"
    assert facts["available"]
    assert facts["devices"] == 2
    # Nothing is left behind when the methods are gone.
    assert facts["end"]["live"] == [0] * 16
    assert facts["end"]["mallocs"] == facts["end"]["frees"]


def test_memory_and_copies_are_where_they_should_be(programs: dict[str, Any], stock: Stock) -> None:
    names = ["mlp", "mlp_on_1", "host", "two"]
    facts = stock(*(job(programs[name], repeat=2) for name in names), mode="simulated:2")
    mlp, on_1, host, two = facts["results"]
    assert mlp["loaded"]["live"][0] > 0
    assert mlp["loaded"]["live"][1] == 0
    assert on_1["loaded"]["live"][0] == 0
    assert on_1["loaded"]["live"][1] > 0
    assert two["loaded"]["live"][0] > 0
    assert two["loaded"]["live"][1] > 0

    def during(result: dict[str, Any], counter: str) -> int:
        return int(result["after"][counter] - result["before"][counter])

    for result, engines in ((mlp, 1), (on_1, 1), (host, 1), (two, 2)):
        assert during(result, "launches") == engines
        assert during(result, "copies_h2d") == engines
        assert during(result, "copies_d2h") == engines
        assert during(result, "synchronizations") == engines
        assert during(result, "copies_peer") == 0
        assert during(result, "copies_d2d") == 0
        assert during(result, "mallocs") == 0  # Nothing is allocated once it runs.
    assert during(mlp, "bytes_h2d") == 2 * 8 * 4
    assert during(mlp, "bytes_d2h") == 2 * 4 * 4


def test_planned_memory_on_another_gpu_than_the_engine(
    programs: dict[str, Any], stock: Stock
) -> None:
    """The blob says cuda:1, the program's memory is on cuda:0: copied from GPU to GPU."""
    program = programs["mlp"]
    moved = program.path.with_name("moved.pte")
    moved.write_bytes(patch_program(program.path.read_bytes(), b'"device_id":0', b'"device_id":1'))
    facts = stock(job(program, repeat=3) | {"program": str(moved)}, mode="simulated:2")
    result = facts["results"][0]
    check_outputs(result, program)
    assert result["after"]["copies_peer"] - result["before"]["copies_peer"] == 2
    assert facts["end"]["live"] == [0] * 16


NO_DRIVER = "no NVIDIA driver (libcuda.so.1 not found)"


@pytest.mark.parametrize(
    ("names", "env", "reason"),
    [
        (["mlp", "host", "foreign", "foreign_host"], {}, NO_DRIVER),
        (["mlp", "host"], {"TRT_ET_CUDA": "imaginary"}, "TRT_ET_CUDA is 'imaginary'"),
        (["mlp_on_3"], {"TRT_ET_CUDA": "simulated:2"}, "cuda:3 but this machine has 2 GPU(s)"),
    ],
)
def test_without_the_gpu_there_is_a_clear_error(
    programs: dict[str, Any], stock: Stock, names: list[str], env: dict[str, str], reason: str
) -> None:
    facts = stock(*(job(programs[name]) for name in names), **env)
    for result in facts["results"]:
        assert reason in result["reason"]
    assert facts["stderr"].count(reason) >= len(names)
    assert facts["available"] is (env == {"TRT_ET_CUDA": "simulated:2"})


def test_refusals_leave_the_process_usable(programs: dict[str, Any], stock: Stock) -> None:
    program = programs["mlp"]
    data = program.path.read_bytes()
    folder = program.path.parent

    def changed(name: str, old: bytes, new: bytes) -> dict[str, Any]:
        path = folder / f"{name}.pte"
        path.write_bytes(patch_program(data, old, new))
        return job(program) | {"program": str(path)}

    corrupt = bytearray(data)
    corrupt[data.index(b"TRRF") + 600] ^= 1
    (folder / "corrupt.pte").write_bytes(corrupt)
    cases = [
        (job(program) | {"program": str(folder / "corrupt.pte")}, "corrupt: checksum"),
        (changed("dtype", b'"float32"', b'"int32"'), "its program float32"),
        (changed("shape", b"[2,8]", b"[2,9]"), "says 'x' has 9 in dimension 1"),
        (changed("nobody", b'"device_id":0', b'"device_xx":0'), "no device_id"),
        (changed("unreadable", b'"device_id":0', b'"device_id":""'[:13]), None),
        (changed("direction", b'"is_input":true', b'"is_input":false'[:15]), None),
        (job(programs["host_on_3"]), "engine is for cuda:3 but this machine has 2 GPU(s)"),
        (job(programs["foreign"]), "real tensorrt_rtx engine cannot run on simulated GPUs"),
        (job(program) | {"inputs": [torch.zeros(2, 8, dtype=torch.int32)]}, None),
        (job(program) | {"inputs": [torch.zeros(2, 9)]}, None),
        (job(program) | {"inputs": [torch.zeros(16)]}, None),
        (job(program) | {"inputs": []}, None),
        (job(program) | {"inputs": program.inputs * 2}, None),
        (job(programs["dynamic"]) | {"inputs": [torch.zeros(9, 8)]}, None),
    ]
    facts = stock(*(case for case, _ in cases), job(program), TRT_ET_CUDA="simulated:2")
    for (_, reason), result in zip(cases, facts["results"], strict=False):
        assert "error" in result, result
        if reason is not None:
            assert reason in result["reason"]
    check_outputs(facts["results"][-1], program)
    assert facts["end"]["live"] == [0] * 16


def python(code: str, tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    from conftest import environment

    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_second_copy_of_the_plugin_is_harmless(tmp_path: Path) -> None:
    code = """
import ctypes, pathlib, shutil
import trt_et.runtime as r
assert not r.is_available()
first = r.plugin_path()
copy = pathlib.Path("libcopy.so")
shutil.copy(first, copy)
second = ctypes.CDLL(str(copy.resolve()))
text = ctypes.create_string_buffer(400)
second.trt_et_status(text, 400)
assert b'"backend": false' in text.value and b"another backend" in text.value, text.value
assert r.status()["backend"] and not r.is_available()
print("fine")
"""
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fine" in done.stdout


def test_loading_says_what_is_wrong(tmp_path: Path) -> None:
    code = """
import json, os, pathlib, shutil, sys
import trt_et.runtime as r
from trt_et.errors import OptionError, PluginError
assert "torch" not in sys.modules and "executorch" not in sys.modules
def refused(kind, text, *args):
    try:
        r.load(*args)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
real = r.plugin_path()
os.environ["TRT_ET_PLUGIN"] = "nowhere.so"
refused(PluginError, "nowhere.so")
assert not r.is_available()
pathlib.Path("lib").mkdir()
shutil.copy(real, "lib/plugin.so")
pathlib.Path("lib/build_info.json").write_text(json.dumps({"executorch": "1.4.0"}))
os.environ["TRT_ET_PLUGIN"] = "lib/plugin.so"
refused(PluginError, "built against executorch 1.4.0, but 1.5.1")
pathlib.Path("lib/build_info.json").unlink()
pathlib.Path("lib/plugin.so").write_bytes(b"not a library")
refused(PluginError, "cannot be loaded")
del os.environ["TRT_ET_PLUGIN"]
for mode in ("simulated:0", "simulated:17", "simulated:", "cuda", "simulated:2x", ""):
    refused(OptionError, "simulated:N", mode)
r.load(cuda="simulated:2")
r.load(cuda="simulated:2")
r.load()
refused(PluginError, "already 'simulated:2'", "real")
assert r.device_count() == 2 and r.is_available()
print("fine")
"""
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fine" in done.stdout


def test_every_simulated_call_may_fail(programs: dict[str, Any], tmp_path: Path) -> None:
    """Whichever CUDA call fails, in load, execute or release: an error, then all is well again."""
    code = """
import ctypes, sys, torch
import trt_et.runtime as r
sys.path.insert(0, FOLDER)
import run_stock
r.load(cuda="simulated:2")
library = ctypes.CDLL(str(r.plugin_path()))
library.trt_et_sim_fail_after.restype = ctypes.c_uint64
for job in torch.load("jobs"):
    n, failures, passed = 0, 0, False
    while not passed:
        n += 1
        library.trt_et_sim_fail_after(ctypes.c_uint64(n))
        result = run_stock.run(job)
        # The call has not come any more: every one before it has failed once.
        passed = library.trt_et_sim_fail_after(ctypes.c_uint64(0)) > 0
        failures += "error" in result
        again = run_stock.run(job)
        assert "error" not in again, (n, again)
        torch.testing.assert_close(again["outputs"], job["expected"], rtol=1e-4, atol=1e-5)
    assert failures > 20, failures
assert run_stock.stats()["live"] == [0] * 16
print("fine")
"""
    jobs = [
        job(programs[name]) | {"expected": programs[name].outputs} for name in ("two", "two_host")
    ]
    torch.save(jobs, tmp_path / "jobs")
    done = python(code.replace("FOLDER", repr(str(Path(__file__).parent))), tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "fine" in done.stdout
