"""Settings that nobody reads are told, with the name that was probably meant."""

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
        return re.findall(r"(?:unknown|TRT_ET_LOG is) .*", done.stderr)

    return run


def test_misspelt_variables_are_told_with_the_nearest(lines):
    found = lines(TRT_ET_CUDA_GRAPH="0", TRT_ET_DEVISE="1", TRT_ET_LOG="verbose")
    assert sorted(found) == [
        "TRT_ET_LOG is 'verbose'; expected debug",
        "unknown environment variable 'TRT_ET_CUDA_GRAPH' is ignored; the nearest is "
        "TRT_ET_CUDA_GRAPHS",
        "unknown environment variable 'TRT_ET_DEVISE' is ignored; the nearest is TRT_ET_DEVICE",
    ]


def test_every_documented_variable_is_known(lines):
    page = (ROOT / "docs/reference/environment.md").read_text()
    names = set(re.findall(r"`(TRT_ET_[A-Z_]+)`", page))
    assert len(names) > 20
    assert lines(**dict.fromkeys(names - {"TRT_ET_CUDA"}, "")) == []
