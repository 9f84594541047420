"""Settings that nobody reads are told."""

from __future__ import annotations

import re

import pytest

from tests.support.native_environment import ROOT
from tests.support.python_process import run_forked


@pytest.fixture
def lines(programs, runner):
    """What the runner says of unknown settings."""

    def run(**variables):
        done = runner("--model_path", programs["mlp"].path, cuda="simulated", **variables)
        assert done.returncode == 0, done.stderr
        return re.findall(r"unknown .*", done.stderr)

    return run


def test_misspelt_variables_are_told_in_one_line(lines):
    where = "is ignored: docs/native.md has those that are known"
    assert lines(TRT_ET_DEVISE="1") == [f"unknown environment variable 'TRT_ET_DEVISE' {where}"]
    assert lines(TRT_ET_CUDA_GRAPH="0", TRT_ET_DEVISE="1", TRT_ET_LOGS="") == [
        f"unknown environment variable 'TRT_ET_CUDA_GRAPH' (and 2 more) {where}"
    ]


def test_every_documented_variable_is_known(lines):
    page = (ROOT / "docs/reference/environment.md").read_text()
    names = set(re.findall(r"`(TRT_ET_[A-Z_]+)`", page))
    assert len(names) > 20
    assert lines(**dict.fromkeys(names - {"TRT_ET_CUDA"}, "")) == []


def test_variables_are_read_once_and_options_are_set_later(programs, tmp_path):
    """A load beside a thread that changes the environment would read freed memory."""
    code = """
import os, sys
import trt_et.runtime
from executorch.runtime import Runtime
trt_et.runtime.load("simulated:1")
def load():
    Runtime.get().load_program(sys.argv[1]).load_method("forward")
os.environ["TRT_ET_DEVICE"] = "9"
load()
trt_et.runtime.set_option("device", "9")
try:
    load()
except RuntimeError:
    print("refused")
trt_et.runtime.set_option("device", "")
load()
for name, value in (("device", "first"), ("devise", "1")):
    try:
        trt_et.runtime.set_option(name, value)
    except trt_et.OptionError as error:
        print(error)
"""
    done = run_forked(code, programs["mlp"].path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused"), done.stdout
    assert "option device (TRT_ET_DEVICE) is 'first'" in done.stdout
    assert "no option 'devise'" in done.stdout
