"""``trt-et inspect``, as a user types it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import typer

from tests.support.cli.command_line import invoke, run
from tests.support.cli.sample_programs import program
from tests.support.lowering import finish
from trt_et import TensorRTPartitioner
from trt_et.cli.common import errors_on_one_line
from trt_et.cli.inspect import differences, inspect_command
from trt_et.inspection import inspect_program


@pytest.fixture
def file(tmp_path):
    def write(kind: str) -> Path:
        path = tmp_path / f"{kind}.pte"
        path.write_bytes(program(kind))
        return path

    return write


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("split", "1 tensorrt_1 TensorRTBackend reference 1."),
        ("split", " simulated GPUs cuda:1 "),
        ("dynamic", "0 in input0 inputs_0 float32 [1..8, 4]"),
        ("foreign", "TensorRTBackend an unknown builder the library's default targets cuda:2"),
        ("rtx", "0 tensorrt_0 TensorRTBackend tensorrt_rtx 1"),
        ("xnnpack", "0 XnnpackBackend"),
        ("xnnpack", "named data of delegates: "),
        ("cpu", "3 x aten::addmm.out"),
    ],
)
def test_it_reads_files_of_every_backend(file, kind, expected):
    rows = (" ".join(line.split()) for line in run("inspect", file(kind)).splitlines())
    assert any(expected in row for row in rows)


def test_it_reads_a_pipe(file, tmp_path):
    path = file("split")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    found = run("inspect", pipe)
    writer.join()
    assert found.splitlines()[1:] == run("inspect", path).splitlines()[1:]


def test_it_writes_in_an_ascii_locale(file, tmp_path):
    path = tmp_path / "mod\N{LATIN SMALL LETTER E WITH GRAVE}le.pte"
    path.write_bytes(file("split").read_bytes())
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", "from trt_et.cli import main; main()", "inspect", path],
        env=os.environ | ascii_only,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"mod")
    assert b"tensorrt_1" in done.stdout


def test_json_holds_the_same_facts(file):
    document = json.loads(run("inspect", file("split"), "--json"))
    method = document["methods"]["forward"]
    assert [delegate["engine"]["device_id"] for delegate in method["delegates"]] == [1, 1]
    assert method["delegates"][0]["compile_specs"]["target_device"] == "cuda:1"
    assert method["delegates"][0]["operators"] == {"aten::linear.default": 1}
    assert method["cpu_operators"] == {"aten::cumsum.out": 1}
    assert len(method["copies"]) == 5


def test_an_engine_can_be_extracted(file, tmp_path):
    out = tmp_path / "engine"
    run("inspect", file("foreign"), "--extract-engine", out)
    assert out.read_bytes() == b"their engine"
    assert "has no engine" in run("inspect", file("xnnpack"), "--extract-engine", out, code=1)
    arguments = ("--extract-engine", out, "--delegate", 7)
    assert "no delegate 7; it has 1, from number 0" in run(
        "inspect", file("foreign"), *arguments, code=2
    )
    arguments = ("--extract-engine", out, "--method", "backward")
    assert "no method 'backward'" in run("inspect", file("foreign"), *arguments, code=2)


def test_diff_names_what_differs(file):
    split, rtx = file("split"), file("rtx")
    assert run("inspect", split, "--diff", split) == "no difference\n"
    printed = run("inspect", split, "--diff", rtx, code=1)
    assert "methods.forward.delegates: 2 entries -> 1 entries" in printed
    assert "methods.forward.delegates[0].engine.device_id: 1 -> 0" in printed


def test_differences_name_the_value_and_its_path():
    first = {"engines": [{"device": 0, "shape": [1]}], "only": 1}
    second = {"engines": [{"device": 1, "shape": [1]}, {}], "more": 2}
    assert list(differences(first, second)) == [
        "engines: 1 entries -> 2 entries",
        "engines[0].device: 0 -> 1",
        "only: only in the first",
        "more: only in the second",
    ]


def test_a_page_is_written_or_one_line_says_why_not(file, tmp_path):
    out = tmp_path / "page.html"
    run("inspect", file("split"), "--html", out)
    assert "split.pte" in out.read_text()
    out = tmp_path / "missing" / "page.html"
    message = run("inspect", file("foreign"), "--html", out, code=1)
    assert message == f"trt-et: {out} cannot be written: there is no folder {out.parent}\n"
    for flag in ("--html", "--extract-engine"):
        message = run("inspect", file("foreign"), flag, "/dev/full", code=1)
        assert (
            message == "trt-et: /dev/full cannot be written: [Errno 28] No space left on device\n"
        )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is no ExecuTorch program"),
        (b"not a program", "is no ExecuTorch program"),
    ],
)
def test_what_is_no_program_is_one_line(tmp_path, content, message):
    path = tmp_path / "x.pte"
    if content is not None:
        path.write_bytes(content)
    result = invoke("inspect", path)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["split", "foreign", "rtx", "xnnpack", "cpu"])
def test_a_damaged_file_ends_in_one_line_and_exit_status_1(tmp_path, kind, capsys):
    """80 mutants of each kind, each with one to four bytes changed, or cut, all in one process."""
    pte = program(kind)
    (method,) = inspect_program(pte)
    chosen = random.Random(kind)
    path = tmp_path / "mutant.pte"
    refused = 0
    for number in range(80):
        mutant = bytearray(pte)
        # Half of them in the program itself, which is a small part of the file.
        most = len(pte) if number % 2 else min(len(pte), 4096)
        changed = [chosen.randrange(most) for _ in range(chosen.randint(1, 4))]
        for at in changed:
            mutant[at] ^= chosen.randint(1, 255)
        if number % 10 == 9:
            del mutant[chosen.randrange(len(mutant)) :]
        path.write_bytes(mutant)
        code = 0
        try:
            with errors_on_one_line():
                inspect_command(path, as_json=True)
        except typer.Exit as done:
            code = done.exit_code
        printed, line = capsys.readouterr()
        if code:
            refused += 1
            assert code == 1
            assert line.startswith("trt-et: ")
            assert line.count("\n") == 1
            assert len(line) < 1000
        else:
            json.loads(printed)
            assert not line
        for delegate in method.delegates:
            # An engine with a checksum: no changed byte is overlooked.
            if delegate.engine is not None and delegate.engine.sha256:
                end = delegate.offset + delegate.size
                assert code or not any(delegate.offset <= at < end for at in changed)
    assert refused > 10


@pytest.fixture(scope="module")
def perceptrons(tmp_path_factory):
    """Two programs of TensorRT-RTX: the second has one more operator, and what follows it."""
    folder = tmp_path_factory.mktemp("perceptrons")
    first, second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
    modules = {
        "plain": torch.nn.Sequential(first, torch.nn.GELU(), second),
        "softmax": torch.nn.Sequential(first, torch.nn.GELU(), second, torch.nn.Softmax(-1)),
    }
    for name, module in modules.items():
        exported = torch.export.export(module.eval(), (torch.randn(4, 16),))
        program = finish(exported, TensorRTPartitioner(builder="tensorrt_rtx"))
        (folder / f"{name}.pte").write_bytes(program.buffer)
    return folder


def test_kernels_are_a_table_with_totals_below(perceptrons):
    lines = run("inspect", perceptrons / "plain.pte", "--kernels").splitlines()
    rows = [" ".join(line.split()) for line in lines if "runtime_fusion" in line]
    assert rows == [
        "0 runtime_fusion matmul, add, div, erf, add, mul, mul linear_0, gelu_0 256 B 512 B "
        "2.1 KiB __myl_FcAddDivErfAddMulMul",
        "1 runtime_fusion matmul, add linear_1 512 B 256 B 2.1 KiB __myl_FcAdd",
    ]
    totals = "2 kernels, 5.7 KiB read and written in a call, of which 4.2 KiB constants"
    assert lines[-1].startswith(f"delegate 0, tensorrt_0: {totals}; ")


def test_kernels_are_in_the_document_if_asked_for(perceptrons):
    file = perceptrons / "plain.pte"
    (plain,) = _delegates(run("inspect", file, "--json"))
    (full,) = _delegates(run("inspect", file, "--json", "--kernels"))
    kernels = full.pop("kernels")
    assert full == plain
    assert kernels["count"] == len(kernels["kernels"]) == 2
    assert kernels["kernels"][1]["operators"] == ["matmul", "add"]
    assert kernels["bytes_moved"] == kernels["traffic"] + kernels["constant_bytes"] == 5824


@pytest.mark.parametrize("kind", ["split", "foreign", "xnnpack"])
def test_kernels_of_other_engines_are_not_known(kind, file):
    path = file(kind)
    lines = run("inspect", path, "--kernels").splitlines()
    delegates = _delegates(run("inspect", path, "--json", "--kernels"))
    assert delegates
    assert all(delegate["kernels"] is None for delegate in delegates)
    assert sum(line.endswith(": kernels are not known") for line in lines) == len(delegates)


def test_a_comparison_names_the_kernels_that_differ(perceptrons):
    paths = [perceptrons / f"{name}.pte" for name in ("plain", "softmax")]
    done = invoke("inspect", paths[0], "--diff", paths[1])
    assert done.exit_code == 1
    lines = [line for line in done.stdout.splitlines() if ".kernels" in line]
    start = "methods.forward.delegates[0].kernels"
    assert lines[0].startswith(f"{start}: 2 kernels, 5.7 KiB read")
    assert any(" -> 3 kernels, " in line for line in lines)
    assert f"{start}[2]: only in the second: function " in lines[-1]
    assert not any(line.startswith(f"{start}[0]") for line in lines)
    assert "kernels" not in invoke("inspect", paths[0], "--diff", paths[0]).stdout


def _delegates(printed: str) -> list[dict]:
    return json.loads(printed)["methods"]["forward"]["delegates"]
