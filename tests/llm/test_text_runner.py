"""Exported language models in ExecuTorch's own TextLLMRunner say what eager says."""

from __future__ import annotations

import pytest

from tests.support.programs.language_models import (
    NAMES,
    NO_END,
    CountingModel,
    Runner,
    eager_answer,
    make_model,
    make_prompt,
)
from trt_et.inspection import inspect_program
from trt_et.llm import export_llm

# More than the windows of those that have one.
NEW_TOKENS = 24
OPTIONS = {"builder": "reference", "eos_ids": NO_END}


def check(runner: Runner, model, lengths: tuple[int, ...]) -> None:
    for length in lengths:
        text, ids = make_prompt(length)
        assert runner.answer(text, NEW_TOKENS) == eager_answer(model, ids, NEW_TOKENS), length


@pytest.mark.parametrize("name", NAMES)
def test_a_model_says_what_eager_says(name, tmp_path):
    model = make_model(name)
    pte = bytes(export_llm(model, cache_length=72, **OPTIONS).buffer)
    method = inspect_program(pte)[0]
    assert len(method.delegates) == 1
    check(Runner(tmp_path, pte), model, (1, 17, 48))


@pytest.mark.long
def test_the_cache_of_a_sliding_window_grows_with_the_window_not_with_the_text(tmp_path):
    model = make_model("gemma3")  # A layer with a window, and one without.
    pte = bytes(export_llm(model, cache_length=200, max_prompt=8, **OPTIONS).buffer)
    (delegate,) = inspect_program(pte)[0].delegates
    rows = [binding.shape[2] for binding in delegate.engine.inputs if len(binding.shape) == 4]
    window = 16 + 2 * 8 - 2
    assert rows == [window, window, 200, 200]
    # The second prompt is read into the rows of the first text.
    check(Runner(tmp_path, pte), model, (33, 1, 7, 8, 100))


@pytest.fixture(scope="module")
def counting() -> bytes:
    """A program whose cache holds 24 tokens."""
    return bytes(export_llm(CountingModel(24), cache_length=24, **OPTIONS).buffer)


@pytest.fixture(scope="module")
def token_by_token() -> bytes:
    """A program that reads one token at a time, and whose cache holds 28."""
    model = CountingModel(28)
    return bytes(export_llm(model, cache_length=28, max_prompt=1, **OPTIONS).buffer)


def most_frequent(ids: list[int]) -> int:
    """What the counting model says after these tokens."""
    return max(sorted(set(ids)), key=ids.count)


def test_max_prompt_1_reads_a_prompt_token_by_token(tmp_path, token_by_token):
    runner = Runner(tmp_path, token_by_token)
    for length in (1, 17):
        text, ids = make_prompt(length)
        assert runner.answer(text, 4) == [most_frequent(ids)] * 4


def test_a_text_ends_where_the_cache_ends_and_a_prompt_that_does_not_fit_is_an_error(
    tmp_path, counting
):
    runner = Runner(tmp_path, counting)
    text, ids = make_prompt(20)
    answer = runner.answer(text, NEW_TOKENS)
    assert answer == [most_frequent(ids)] * len(answer)
    assert 1 <= len(answer) <= 5
    for text in (make_prompt(30)[0], ""):
        with pytest.raises(RuntimeError, match="Generation failed"):
            runner.answer(text, NEW_TOKENS)


def test_two_models_and_two_loads_of_one_keep_caches_of_their_own(
    tmp_path, counting, token_by_token
):
    runners, texts = [], []
    for index, pte in enumerate((counting, counting, token_by_token)):
        (tmp_path / str(index)).mkdir()
        runners.append(Runner(tmp_path / str(index), pte))
        texts.append(make_prompt(7 + index))
    for runner, (text, _) in zip(runners, texts, strict=True):
        runner.read(text)
    for runner, (_, ids) in zip(runners, texts, strict=True):
        assert runner.go_on(3) == [most_frequent(ids)] * 3
