"""``trt-et export``, ``run``, ``compare`` and ``bench``, as a user types them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.cli.command_line import invoke, run
from tests.support.cli.sample_programs import program
from tests.support.sampled import sampled
from trt_et.cli.program import choose_gpus
from trt_et.inspection import inspect_file, inspect_program

MODELS = """
import os, signal, torch

class Model(torch.nn.Module):
    def __init__(self, extra=0):
        super().__init__()
        self.extra = extra
    def forward(self, x):
        return torch.relu(x) + 1 + self.extra

def model():
    size = torch.export.Dim("size", min=1, max=8)
    return Model(), (torch.ones(2, 4),), ({0: size},)
def other():
    return Model(0.5), (torch.ones(2, 4),)
def wider():
    return Model(), (torch.ones(2, 5),)
class Scaled(torch.nn.Module):
    def forward(self, a, b):
        return torch.relu(a) * b
def scaled():
    return Scaled(), (torch.ones(2, 4), torch.ones(2, 4))
def wrong():
    return 1
def failing():
    raise KeyError("x")
def branching():
    class Branching(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x
    return Branching(), (torch.ones(2),)
def many():
    return 1, 2, 3, 4
def named():
    class Named(torch.nn.Module):
        def forward(self, x):
            return {"logits": x.relu() + 1, "file": [x * 2, x * 3]}
    return Named(), (torch.ones(2, 4),)
def half():
    return torch.nn.Linear(4, 4).half(), (torch.ones(2, 4),)
def decomposed():
    class Decomposed(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.svd(x).S
    return Decomposed(), (torch.ones(4, 4),)
instance = Model()
def crashing():
    os.kill(os.getpid(), signal.SIGSEGV)
"""
GPUS = ("--cuda", "simulated:2")


def run_without_gpus(*arguments):
    """The command in a process that sees no GPU, without a setting."""
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    hidden.pop("TRT_ET_CUDA", None)
    command = [sys.executable, "-m", "trt_et.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=hidden)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder: models, and a program of one of them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models_of_a_user.py").write_text(MODELS)
    (tmp_path / "dynamic.pte").write_bytes(program("dynamic"))
    yield tmp_path
    sys.modules.pop("models_of_a_user", None)


def test_calibration_reads_the_inputs_of_calls_from_files(folder):
    explain = ("export", "models_of_a_user:model", "--builder", "reference", "--explain")
    explain = (*explain, "--precision", "float16", "--calibration")
    reason = "values beyond 3.28e+04 in calibration"
    Path("calls").mkdir()
    np.savez("small.npz", np.ones((2, 4), np.float32))
    np.save("calls/0.npy", np.ones((2, 4), np.float32))
    np.save("calls/1.npy", np.full((3, 4), 1e6, np.float32))
    np.save("double.npy", np.ones((2, 4)))
    assert reason not in run(*explain, "small.npz")
    assert reason in run(*explain, "small.npz", "--calibration", "calls")
    for source, code, message in (
        ("none.npz", 1, "none.npz cannot be read: No such file"),
        ("models_of_a_user.py", 2, "models_of_a_user.py is no .npy or .npz file"),
        ("double.npy", 2, "calibration[0]: input x is torch.float64; expected torch.float32"),
    ):
        assert message in run(*explain, source, code=code)


def test_calibration_with_the_names_of_the_inputs_may_have_another_order(folder):
    explain = ("export", "models_of_a_user:scaled", "--builder", "reference", "--explain")
    explain = (*explain, "--precision", "float16", "--exclude", "aten.mul", "--calibration")
    small, large = np.ones((2, 4), np.float32), np.full((2, 4), 1e6, np.float32)
    np.savez("named.npz", b=large, a=small)
    np.savez("in_order.npz", large, small)
    reason = "values beyond 3.28e+04 in calibration"
    assert reason not in run(*explain, "named.npz")  # Of ``a`` alone there is an engine.
    assert reason in run(*explain, "in_order.npz")
    np.savez("half.npz", b=large, x=small)
    assert "half.npz has the arrays b, x; the inputs are" in run(*explain, "half.npz", code=2)


def test_a_model_is_exported_for_the_gpu_that_is_asked_for(folder):
    arguments = ("export", "models_of_a_user:model", "--builder", "reference", "--device", "cuda:1")
    assert "tensorrt_0 " in run(*arguments, "-o", "none.pte", "--explain")
    assert not Path("none.pte").exists()
    report = json.loads(run(*arguments, "-o", "out.pte", "--json"))
    assert report["engines"] == 1
    assert report["bytes"] == Path("out.pte").stat().st_size
    (method,) = inspect_file("out.pte").methods
    assert method.delegates[0].engine.device_id == 1
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["models_of_a_user:failing"], 1, "models_of_a_user:failing fails: KeyError: 'x'"),
        (["models_of_a_user:wrong"], 1, "returns int; expected (module, example_inputs"),
        (["models_of_a_user:none"], 2, "has no callable 'none'"),
        (["models_of_a_user:torch"], 2, "is module; expected a function that returns"),
        (["models_of_a_user:modle"], 2, "'modle'; did you mean model"),
        (["models_of_a_user:many"], 1, "returns 4 values; expected (module, example_inputs"),
        (["models_of_a_user:decomposed"], 1, "Core ATen operators only, not aten._linalg_svd."),
        (["models_of_a_user:half"], 1, "; give the inputs the model's dtype"),
        (["models_of_a_user:instance"], 2, "is Model; expected a function that returns"),
        (["models_of_a_user:model", "-o", "."], 1, ". cannot be written: it is a folder"),
        (["no_such_module:f"], 2, "No module named 'no_such_module'"),
        (["models_of_a_user"], 2, "is not MODULE:CALLABLE"),
        (["models_of_a_user:model", "--builder", "best"], 2, "builder 'best' is unknown"),
        (["models_of_a_user:model", "--device", "gpu"], 2, "device 'gpu' is not a GPU"),
        (["models_of_a_user:model", "--precision", "int8"], 2, "help('trt_et.quantizer')"),
        (["models_of_a_usr.py:model"], 2, "no file models_of_a_usr.py; did you mean models_of_a_u"),
        (["models_of_a_user:model", "--html", "no/x.html"], 1, "there is no folder no"),
        (
            ["models_of_a_user:model", "--full-graph", "--exclude", "aten.relu"],
            *(1, "excluded by the caller at models_of_a_user.py:"),
        ),
    ],
)
def test_what_cannot_be_exported_is_one_line(folder, arguments, code, message):
    result = invoke("export", "--builder", "reference", "-o", "out.pte", *arguments)
    assert result.exit_code == code, result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not Path("out.pte").exists()


def test_a_refusal_of_torch_names_the_line_of_the_model(folder):
    result = invoke("export", "models_of_a_user:branching", "--builder", "reference", "-o", "o.pte")
    last = result.stderr.strip().splitlines()[-1]
    assert re.search(r"at models_of_a_user\.py:\d+: return x \* 2 if x\.sum\(\) > 0 else x$", last)


def test_a_program_runs_with_given_inputs_of_another_size(folder):
    array = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)
    np.save("in.npy", array)
    result = invoke("run", "dynamic.pte", "--input", "in.npy", "-o", "out.npz", *GPUS)
    printed = result.stdout
    assert result.stderr == "wrote out.npz\n"
    assert "output 0: float32 [3, 4], from 1 to 6" in printed
    np.testing.assert_array_equal(np.load("out.npz")["output0"], array.clip(0) + 1)


@pytest.mark.long
def test_outputs_have_the_names_of_the_models_dict(folder):
    run("export", "models_of_a_user:named", "--builder", "reference", "-o", "named.pte")
    printed = run("run", "named.pte", "-o", "out.npz", *GPUS)
    names = ["logits", "file.0", "file.1"]
    assert [line.split(": ")[0] for line in printed.splitlines()] == [f"output {n}" for n in names]
    assert list(np.load("out.npz")) == names
    assert "output logits agrees" in run("compare", "models_of_a_user:named", "named.pte", *GPUS)


@pytest.mark.parametrize("task", sampled(["run", "bench", "compare"]))
def test_without_a_gpu_reference_engines_run_on_simulated_ones(folder, task):
    model = ["models_of_a_user:model"] if task == "compare" else []
    done = run_without_gpus(task, *model, "dynamic.pte")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1
    assert "simulated GPUs are used: no " in done.stderr


def test_without_a_gpu_real_ones_are_an_error_where_they_are_asked_for(folder):
    done = run_without_gpus("run", "dynamic.pte", "--cuda", "real")
    assert done.returncode == 1
    assert done.stderr.startswith("trt-et: dynamic.pte: no ")
    assert "; reference engines run with --cuda simulated:1" in done.stderr


def test_only_reference_engines_get_simulated_gpus_unasked(monkeypatch):
    monkeypatch.setattr("trt_et.runtime.status", lambda: {"cuda": "", "problem": ""})
    monkeypatch.delenv("TRT_ET_CUDA", raising=False)
    (method,) = inspect_program(program("dynamic"))
    (delegate,) = method.delegates

    def with_second(**changes):
        second = replace(delegate, engine=replace(delegate.engine, **changes))
        return replace(method, delegates=(delegate, second))

    assert choose_gpus("", with_second(device_id=2)) == "auto:3"
    assert choose_gpus("real", method) == "real"
    assert not choose_gpus("", with_second(builder="tensorrt_rtx"))
    assert not choose_gpus("", replace(method, delegates=()))
    monkeypatch.setenv("TRT_ET_CUDA", "real")
    assert not choose_gpus("", method)


@pytest.mark.long
def test_comparison_with_the_model_agrees_and_with_another_differs(folder):
    found = json.loads(run("compare", "models_of_a_user:model", "dynamic.pte", "--json", *GPUS))
    assert found["agree"]
    assert found["outputs"][0]["largest_error"] == 0
    arguments = ("compare", "models_of_a_user:other", "dynamic.pte", "--plot", "cmp.png", *GPUS)
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert "output 0 DIFFERS: largest error 0.5 (20.00% of the largest value)" in result.stdout
    assert result.stderr == "wrote cmp.png\n"
    assert Path("cmp.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_comparison_with_a_model_of_other_inputs_names_the_input_that_does_not_fit(folder):
    printed = run("compare", "models_of_a_user:wider", "dynamic.pte", *GPUS, code=1)
    assert "does not take the model's example inputs: input 0 (inputs_0) has the sizes" in printed
    assert printed.count("\n") == 1


@pytest.mark.long
def test_a_crash_of_the_runtime_is_one_line(folder):
    printed = run("compare", "models_of_a_user:crashing", "dynamic.pte", *GPUS, code=1)
    assert "the runtime crashed with SIGSEGV" in printed
    assert printed.count("\n") == 1


def test_times_and_copies_are_counted(folder):
    found = json.loads(run("bench", "dynamic.pte", "--repeat", 5, "--json", *GPUS))["dynamic.pte"]
    assert len(found["seconds"]) == 5
    assert found["per_call"]["copies_h2d"] == 1
    assert found["per_call"]["copies_d2h"] == 1
    assert found["per_call"]["bytes_h2d"] == 8 * 4 * 4


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "none.pte"], 1, "none.pte cannot be read: No such file"),
        (["run", "models_of_a_user.py"], 1, "is no ExecuTorch program"),
        (["run", "dynamic.pte", "--method", "f"], 2, "has no method 'f'; it has forward"),
        (["run", "dynamic.pte", "--shape", "0=axb"], 2, "is not INDEX=SIZExSIZE"),
        (["run", "dynamic.pte", "-o", "out.npy"], 2, "expected a name that ends in .npz"),
        (["run", "dynamic.pte", "-o", "no/out.npz"], 1, "there is no folder no"),
        (["compare", "m:f", "dynamic.pte", "--plot", "no/x.png"], 1, "there is no folder no"),
        (["compare", "m:f", "dynamic.pte", "--plot", "x.y"], 2, "ends in .png or .svg"),
        (["compare", "dynamic.pte", "m.py:f"], 2, "trt-et compare m.py:f dynamic.pte"),
        (["bench", "dynamic.pte", "none.pte"], 1, "none.pte cannot be read: No such file"),
        (["bench", "dynamic.pte", "--plot", "no/x.png"], 1, "there is no folder no"),
        (
            ["bench", "dynamic.pte", "--plot", "x.jpg"],
            *(2, "x.jpg cannot be drawn: expected a name that ends in .png or .svg"),
        ),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_loaded(
    folder, monkeypatch, arguments, code, message
):
    monkeypatch.setattr(subprocess, "run", None)
    assert message in run(*arguments, code=code)


@pytest.mark.long
def test_engines_beside_the_program_are_written_and_found(folder):
    export = ("export", "models_of_a_user:model", "--builder", "reference", "-o", "out.pte")
    assert "wrote engines.ptd" in run(*export, "--external-engines", "engines")
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    run("compare", "models_of_a_user:model", "out.pte", "--per-partition", *GPUS)
    Path("engines.ptd").rename("moved")
    missing = run("run", "out.pte", *GPUS, code=1)
    assert "engines are in engines.ptd, which does not exist; use --data FILE.ptd" in missing
    run("run", "out.pte", "--data", "moved", *GPUS)
    missing = run("inspect", "out.pte", "--extract-engine", "engine", code=1)
    assert "name it with --data" in missing
    run("inspect", "out.pte", "--data", "moved", "--extract-engine", "engine")
    assert Path("engine").read_bytes() in Path("moved").read_bytes()
    wrong = run("run", "out.pte", "--data", "out.pte", *GPUS, code=1)
    assert "out.pte cannot be read: it is no file of named data (.ptd)" in wrong
