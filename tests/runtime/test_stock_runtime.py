"""Programs in the stock Python runtime, on simulated GPUs."""

from __future__ import annotations

import ast
import subprocess
from typing import Any

import pytest
import torch

from tests.support.lowering import lower
from tests.support.native_blobs import patch_program
from tests.support.native_environment import run_python
from tests.support.python_process import run_forked


def job(program: Any, **more: Any) -> dict[str, Any]:
    return {"program": str(program.path), "inputs": program.inputs, **more}


def check_outputs(result: dict[str, Any], program: Any) -> None:
    assert "error" not in result, result
    assert len(result["outputs"]) == len(program.outputs)
    for found, expected in zip(result["outputs"], program.outputs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


RUNNABLE = (
    *("mlp", "mlp_on_1", "host", "two", "two_host", "many"),
    *("dynamic", "dynamic_host", "channels_last"),
)


def refusals(programs: dict[str, Any]) -> dict[str, tuple[dict[str, Any], str | None]]:
    """Jobs that must fail, and the reason that must be given where it is ours to give."""
    program = programs["mlp"]
    data = program.path.read_bytes()
    corrupt = bytearray(data)
    corrupt[data.index(b"TRRF") + 600] ^= 1

    def changed(name: str, content: bytes) -> dict[str, Any]:
        path = program.path.with_name(f"{name}.pte")
        path.write_bytes(content)
        return job(program) | {"program": str(path)}

    def sized(batch: int) -> dict[str, Any]:
        return job(programs["dynamic"]) | {"inputs": [torch.zeros(batch, 8)]}

    def patched(name: str, old: bytes, new: bytes) -> dict[str, Any]:
        return changed(name, patch_program(data, old, new))

    return {
        "corrupt": (changed("corrupt", bytes(corrupt)), "corrupt: checksum"),
        "dtype": (patched("dtype", b'"float32"', b'"int32"'), "its program float32"),
        "shape": (patched("shape", b"[2,8]", b"[2,9]"), "has 9 in dimension 1"),
        "rank": (patched("rank", b"[2,8]", b"[16]"), "of rank 1, its program float32 of rank 2"),
        "no device": (patched("device", b'"device_id":0', b'"device_xx":0'), "no device_id"),
        "counts": (patched("count", b'"is_input":false', b'"is_input":true'), "2 inputs and 0 out"),
        "mlp_on_3": (job(programs["mlp_on_3"]), "cuda:3 but this machine has 2 GPU(s)"),
        "foreign": (job(programs["foreign"]), "cannot run on simulated GPUs"),
        "too large": (sized(9), None),
        "empty": (sized(0), "the sizes of an engine begin at 1"),
    }


@pytest.fixture(scope="module")
def on_two_gpus(programs, stock):
    """Everything that a process with two simulated GPUs is asked, in one process."""
    program = programs["mlp"]
    # The blob says cuda:1, the program's memory is on cuda:0.
    moved = program.path.with_name("moved.pte")
    moved.write_bytes(patch_program(program.path.read_bytes(), b'"device_id":0', b'"device_id":1'))
    jobs = {name: job(programs[name], repeat=3) for name in RUNNABLE}
    jobs["moved"] = job(program, repeat=3) | {"program": str(moved)}
    jobs |= {f"refused: {name}": case for name, (case, _) in refusals(programs).items()}
    jobs["mlp again"] = job(program)
    facts = stock(*jobs.values(), TRT_ET_CUDA="simulated:2")
    return facts | {"results": dict(zip(jobs, facts["results"], strict=True))}


@pytest.mark.parametrize("name", RUNNABLE)
def test_programs_agree_with_eager(programs, on_two_gpus, name):
    check_outputs(on_two_gpus["results"][name], programs[name])


def test_a_program_moves_to_another_gpu_with_its_memory(programs, stock):
    program = programs["mlp_on_3"]
    facts = stock(job(program), TRT_ET_CUDA="simulated:2", TRT_ET_DEVICE="1")
    (result,) = facts["results"]
    check_outputs(result, program)
    assert result["loaded"]["live"][0] == 0
    assert result["loaded"]["live"][1] > 0
    assert during(result, "copies_peer") == 0


def test_status_and_that_nothing_is_left_behind(on_two_gpus):
    status = on_two_gpus["status"]
    assert (status["backend"], status["allocator"], status["cuda"]) == (True, True, "simulated:2")
    assert (on_two_gpus["available"], on_two_gpus["devices"]) == (True, 2)
    assert not any(on_two_gpus["end"]["live"])
    assert on_two_gpus["end"]["mallocs"] == on_two_gpus["end"]["frees"]


def during(result: dict[str, Any], counter: str) -> int:
    """How much a counter grew in the last call."""
    return int(result["after"][counter] - result["before"][counter])


def test_memory_is_on_the_engines_gpu(on_two_gpus):
    used = {
        name: [size > 0 for size in on_two_gpus["results"][name]["loaded"]["live"][:2]]
        for name in ("mlp", "mlp_on_1", "two")
    }
    assert used == {"mlp": [True, False], "mlp_on_1": [False, True], "two": [True, True]}


@pytest.mark.parametrize(
    ("name", "engines"), [("mlp", 1), ("mlp_on_1", 1), ("host", 1), ("two", 2)]
)
def test_a_call_copies_only_what_it_must(on_two_gpus, name, engines):
    result = on_two_gpus["results"][name]
    for counter in ("launches", "copies_h2d", "copies_d2h"):
        assert during(result, counter) == engines, counter
    # The delegate waits once for its copies from and to the host, ExecuTorch for each of its own.
    assert during(result, "synchronizations") == (1 if name == "host" else 2 * engines)
    for counter in ("copies_peer", "copies_d2d", "mallocs"):
        assert during(result, counter) == 0, counter
    if engines == 1:
        assert during(result, "bytes_h2d") == 2 * 8 * 4
        assert during(result, "bytes_d2h") == 2 * 4 * 4


def test_planned_memory_on_another_gpu_than_the_engine(programs, on_two_gpus):
    result = on_two_gpus["results"]["moved"]
    check_outputs(result, programs["mlp"])
    assert during(result, "copies_peer") == 2


def test_refusals_have_a_reason_and_leave_the_process_usable(programs, on_two_gpus):
    for name, (_, reason) in refusals(programs).items():
        result = on_two_gpus["results"][f"refused: {name}"]
        assert "error" in result, name
        if reason is not None:
            assert reason in result["reason"], name
    check_outputs(on_two_gpus["results"]["mlp again"], programs["mlp"])


NO_DRIVER = "no NVIDIA driver (libcuda.so.1 not found)"


@pytest.mark.reliability("R14")
@pytest.mark.parametrize(
    ("names", "env", "reason"),
    [
        (["mlp", "host", "foreign"], {"TRT_ET_CUDA": "real"}, NO_DRIVER),
        (["foreign"], {}, NO_DRIVER),
        (["mlp", "host"], {"TRT_ET_CUDA": "imaginary"}, "TRT_ET_CUDA is 'imaginary'"),
    ],
)
def test_without_the_gpu_there_is_a_clear_error(programs, stock, names, env, reason):
    facts = stock(*(job(programs[name]) for name in names), **env)
    for result in facts["results"]:
        assert reason in result["reason"]
    assert facts["stderr"].count(reason) >= len(names)
    assert facts["available"] is False
    assert facts["devices"] == 0


def test_reference_engines_are_simulated_without_a_gpu_and_a_setting(programs, stock):
    names = ["foreign", "mlp_on_3", "host", "foreign"]
    facts = stock(*(job(programs[name]) for name in names))
    before, mlp, host, after = facts["results"]
    check_outputs(mlp, programs["mlp_on_3"])
    check_outputs(host, programs["host"])
    assert NO_DRIVER in before["reason"]
    assert "engine cannot run on simulated GPUs" in after["reason"]
    assert facts["stderr"].count(f"simulated GPUs are used: {NO_DRIVER}") == 1
    assert facts["status"]["cuda"] == "simulated:16"
    assert facts["available"]


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.reliability("R14")
def test_a_second_copy_of_the_plugin_is_harmless(tmp_path):
    code = """
import ctypes, json, pathlib, shutil
import trt_et.runtime as r
assert not r.is_available()
first = r.plugin_path()
copy = pathlib.Path("libcopy.so")
shutil.copy(first, copy)
second = ctypes.CDLL(str(copy.resolve()))
text = ctypes.create_string_buffer(400)
second.trt_et_status(text, 400)
status = json.loads(text.value)
assert not status["backend"] and "another backend" in status["problem"], status
assert r.status()["backend"] and not r.is_available()
print("fine")
"""
    assert last_line(run_python("-c", code, folder=tmp_path)) == "fine"


@pytest.mark.long
def test_packages_are_found_after_the_runtime_was_imported(tmp_path):
    """Its libraries then have ".." in their paths, which the folder of packages comes from."""
    model = torch.nn.Linear(4, 2).eval()
    x = torch.ones(1, 4)
    path = tmp_path / "model.pte"
    path.write_bytes(lower(torch.export.export(model, (x,)), builder="onnx"))
    code = f"""
from executorch.runtime import Runtime
import torch, trt_et.runtime
trt_et.runtime.load(cuda="simulated:1")
method = Runtime.get().load_program({str(path)!r}).load_method("forward")
print(method.execute([torch.ones(1, 4)])[0].tolist())
"""
    found = torch.tensor(ast.literal_eval(last_line(run_python("-c", code, folder=tmp_path))))
    torch.testing.assert_close(found, model(x))


def test_loading_says_what_is_wrong(tmp_path):
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
for mode in ("simulated:0", "simulated:17", "simulated:", "cuda", "simulated:2x", "", 3, b"real"):
    refused(OptionError, "simulated:N", mode)
r.load(cuda="simulated:2")
r.load(cuda="simulated:2")
r.load()
refused(PluginError, "already 'simulated:2'", "real")
assert r.device_count() == 2 and r.is_available()
print("fine")
"""
    assert last_line(run_python("-c", code, folder=tmp_path)) == "fine"


@pytest.mark.reliability("R5")
def test_every_simulated_call_may_fail(programs, tmp_path):
    """Whichever CUDA call fails, in load, execute or release: an error, then all is well again."""
    code = """
import ctypes, sys, torch
import trt_et.runtime as r
from tests.support import run_stock
r.load(cuda="simulated:2")
library = ctypes.CDLL(str(r.plugin_path().with_name("libtrt_et_simulation.so")))
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
assert not any(run_stock.stats()["live"])
print("fine")
"""
    jobs = [
        job(programs[name]) | {"expected": programs[name].outputs} for name in ("two", "two_host")
    ]
    torch.save(jobs, tmp_path / "jobs")
    assert last_line(run_forked(code, cwd=tmp_path)) == "fine"
