"""Attentions that end the process in TensorRT-RTX 1.5's builder: built, and equal to eager."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest

from tests.support.lowering import blobs, lower
from tests.support.mended import is_mended
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.attention_networks import CRASHES, NEIGHBOURS, build
from tests.support.programs.crashing_builders import WithoutWorkarounds
from trt_et import TensorRTPartitioner
from trt_et.conversion.installed import installed_variant
from trt_et.errors import BuildCrashed

pytestmark = pytest.mark.skipif(
    installed_variant() != "tensorrt_rtx", reason="torch-tensorrt-rtx is not installed"
)


@pytest.mark.parametrize("name", [*CRASHES, *NEIGHBOURS])
def test_it_is_built_in_a_process_that_lives(name):
    assert build(name) == "built"


@pytest.mark.parametrize("name", [*CRASHES, *NEIGHBOURS])
def test_its_network_equals_eager(name):
    verdict = compare({**CRASHES, **NEIGHBOURS}[name].request())
    assert verdict.outcome == "equal", verdict


@pytest.mark.parametrize(
    ("name", "workaround"),
    [
        ("two attentions of one query", "separate_attention_inputs"),
        ("a feature map", "separate_attention_results"),
        ("an attention by hand", "separate_attention_results"),
    ],
)
def test_without_its_workaround_the_builder_ends_its_process(name, workaround):
    """Where this fails, the installed release needs it no longer: see ``mended_in``."""
    outcome = "built" if is_mended(workaround) else "SIGSEGV"
    assert build(name, workarounds=False) == outcome


@pytest.mark.parametrize(
    ("name", "workaround"),
    [
        ("two attentions of one query", "separate_attention_inputs"),
        ("a feature map", "separate_attention_results"),
    ],
)
def test_without_the_workarounds_the_crash_is_an_error_of_its_partition(name, workaround):
    crash: AbstractContextManager[object] = nullcontext()
    if not is_mended(workaround):
        crash = pytest.raises(
            BuildCrashed, match=r"\(SIGSEGV\) on partition tensorrt_0 .*attention"
        )
    with crash:
        lower(CRASHES[name].program(), builder=WithoutWorkarounds(), on_crash="error")


def test_without_the_workarounds_two_attentions_are_delegated_apart():
    partitioner = TensorRTPartitioner(builder=WithoutWorkarounds(), on_crash="split")
    pte = lower(CRASHES["two attentions of one query"].program(), partitioner=partitioner)
    assert len(blobs(pte)) == (1 if is_mended("separate_attention_inputs") else 2)
    assert partitioner.report.not_delegated == ()
