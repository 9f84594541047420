"""Attentions that end the process in TensorRT-RTX 1.5's builder: built, and equal to eager."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext

import pytest

from tests.support.lowering import lower
from tests.support.mended import is_fixed
from tests.support.network_evaluator.comparison import compare
from tests.support.programs.attention_networks import CRASHES, NEIGHBOURS, build
from tests.support.programs.crashing_builders import WithoutWorkarounds
from tests.support.programs.quantized_networks import needs_rtx
from trt_et.errors import BuildCrashed

pytestmark = needs_rtx


CRASH, WORKAROUND = "two attentions of one query", "inputs of attentions"


@pytest.mark.parametrize("name", [*CRASHES, *NEIGHBOURS])
def test_it_is_built_in_a_process_that_lives_and_equals_eager(name):
    assert build(name) == "built"
    verdict = compare({**CRASHES, **NEIGHBOURS}[name].request())
    assert verdict.outcome == "equal", verdict


def test_without_its_workaround_the_builder_ends_its_process():
    """Where this fails, the installed release needs it no longer: see ``fixed_in``."""
    outcome = "built" if is_fixed(WORKAROUND) else "SIGSEGV"
    assert build(CRASH, workarounds=False) == outcome


def test_without_the_workarounds_the_crash_is_an_error_of_its_partition():
    crash: AbstractContextManager[object] = nullcontext()
    if not is_fixed(WORKAROUND):
        crash = pytest.raises(
            BuildCrashed, match=r"\(SIGSEGV\) on partition tensorrt_0 .*attention"
        )
    spawn = multiprocessing.get_context("spawn")
    with crash, ProcessPoolExecutor(1, mp_context=spawn) as pool:
        lower(CRASHES[CRASH].program(), builder=WithoutWorkarounds(), executor=pool)
