"""Settings that nobody reads are told."""

from __future__ import annotations

import re

import pytest

from tests.support.native_environment import ROOT


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
