"""Tokens of a program in this process: all kinds of programs, and prompts in pieces."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from tests.support.lowering import lower_case
from tests.support.programs.language_models import CountingModel
from tests.support.simulated_gpus import load_program
from trt_et import OptionError
from trt_et.llm import TokenGenerator, export_llm

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


def load(model: Any = None, **options: Any) -> TokenGenerator:
    options = {"builder": "reference", "cache_length": 32, "max_prompt": 4, **options}
    program = export_llm(model or CountingModel(options["cache_length"]), **options)
    return TokenGenerator(load_program(program.buffer))


@pytest.mark.parametrize(
    ("two_methods", "sampling"), [pytest.param(False, False, marks=pytest.mark.long), (True, True)]
)
def test_a_prompt_in_pieces_is_answered_as_a_whole(two_methods, sampling):
    made = load(prefill_and_decode=two_methods, sampling=sampling)
    # The second text begins over the first one.
    for prompt in (PROMPT, [7, 8, 8, 8, 7]):
        likeliest = max(sorted(set(prompt)), key=prompt.count)
        assert list(made.generate(prompt, 6)) == [likeliest] * 6
    # The counts are the logits: 1, 2, 0, 0, ...
    tokens = [
        next(
            made.generate([3, 5, 5], 1, temperature=0.5, generator=torch.Generator().manual_seed(n))
        )
        for n in range(200)
    ]
    weights = (torch.tensor([1.0, 2.0, *[0.0] * 126]) / 0.5).softmax(-1) * 200
    counts = Counter(tokens)
    for token, weight in zip((3, 5), weights, strict=False):
        assert abs(counts[token] - float(weight)) < 4 * float(weight) ** 0.5


@pytest.fixture(scope="module")
def ends_at_5() -> TokenGenerator:
    return load(eos_ids=[7, 5])


def test_a_text_ends_at_a_token_that_ends_it(ends_at_5):
    assert list(ends_at_5.generate(PROMPT, 6)) == [5]


@pytest.mark.parametrize(("prompt", "count"), [([], 1), (PROMPT, 23)])
def test_a_text_without_a_place_is_refused(prompt, count, ends_at_5):
    with pytest.raises(OptionError, match=f"a prompt of {len(prompt)} and an answer of {count}"):
        ends_at_5.generate(prompt, count)


def test_another_program_is_refused():
    program = load_program(lower_case("mlp"))
    with pytest.raises(OptionError, match="no method get_max_context_len"):
        TokenGenerator(program)
    with pytest.raises(OptionError, match=r"program is str; expected .*load_program"):
        TokenGenerator("model.pte")
