"""Exported language models in ExecuTorch's own TextLLMRunner say what eager says."""

from __future__ import annotations

import pytest

from tests.support.programs.language_models import (
    NAMES,
    NO_END,
    Runner,
    eager_answer,
    make_model,
    make_prompt,
)
from trt_et.inspection import inspect_program
from trt_et.llm import export_llm

NEW_TOKENS = 64
OPTIONS = {"builder": "reference", "eos_ids": NO_END}


def check(runner: Runner, model, lengths: tuple[int, ...]) -> None:
    for length in lengths:
        text, ids = make_prompt(length)
        assert runner.answer(text, NEW_TOKENS) == eager_answer(model, ids, NEW_TOKENS), length


@pytest.mark.parametrize("name", NAMES)
def test_a_model_says_what_eager_says(name, tmp_path):
    model = make_model(name)
    pte = bytes(export_llm(model, cache_length=272, **OPTIONS).buffer)
    method = inspect_program(pte)[0]
    assert len(method.delegates) == 1
    check(Runner(tmp_path, pte), model, (1, 17, 200))


def test_a_prompt_longer_than_max_prompt_is_read_in_pieces(tmp_path):
    model = make_model("llama")
    pte = bytes(
        export_llm(
            model, cache_length=272, max_prompt=48, builder="reference", eos_ids=NO_END
        ).buffer
    )
    check(Runner(tmp_path, pte), model, (48, 49, 200))


def test_max_prompt_1_reads_a_prompt_token_by_token(tmp_path):
    model = make_model("llama")
    pte = bytes(export_llm(model, cache_length=96, max_prompt=1, **OPTIONS).buffer)
    check(Runner(tmp_path, pte), model, (1, 17))
