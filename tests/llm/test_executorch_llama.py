"""ExecuTorch's own language models (``examples/models/llama``) are one engine."""

from __future__ import annotations

import pytest

from tests.support.programs.executorch_llama import KINDS, NEW_TOKENS, eager_answer, lower, make
from tests.support.programs.language_models import Runner, make_prompt
from trt_et.inspection import inspect_program

pytest.importorskip("executorch.examples.models.llama.llama_transformer")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_one_engine_that_says_what_eager_says(kind, tmp_path):
    pte = lower(make(**KINDS[kind]), "reference")
    methods = {method.name: method for method in inspect_program(pte)}
    assert len(methods["forward"].delegates) == 1
    runner, eager = Runner(tmp_path, pte), make(**KINDS[kind])
    for length in (1, 100):
        text, ids = make_prompt(length)
        assert runner.answer(text, NEW_TOKENS) == eager_answer(eager, ids), length


@pytest.mark.long
def test_tensorrt_rtx_writes_runs_of_rows_in_place():
    """Not those of a ring, which may begin at its end and go on at its start."""
    pte = lower(make(**KINDS["ring buffers"]), "tensorrt_rtx")
    (delegate,) = next(m for m in inspect_program(pte) if m.name == "forward").delegates
    assert delegate.engine is not None
    assert len(delegate.engine.aliases) == 2
