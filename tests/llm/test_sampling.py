"""Programs that return a token in place of logits."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from tests.support.programs.language_models import VOCABULARY, CountingModel
from tests.support.simulated_gpus import load_method, load_program
from trt_et import OptionError
from trt_et.inspection import inspect_program
from trt_et.llm import export_llm
from trt_et.llm.sampling import SamplingDecoder
from trt_et.runtime import counters


@pytest.fixture(scope="module")
def pte() -> bytes:
    options = {"cache_length": 8, "builder": "reference", "sampling": True}
    return bytes(export_llm(CountingModel(8), **options).buffer)


def sample(method, ids: list[int], temperature: float, random: float) -> torch.Tensor:
    numbers = [torch.tensor([number]) for number in (temperature, random)]
    (token,) = method.execute([torch.tensor([ids]), torch.tensor([0]), *numbers])
    return token.clone()


def test_one_engine_returns_a_token_that_can_be_the_next_input(pte):
    assert len(inspect_program(pte)[0].delegates) == 1
    method = load_method(pte)
    token = sample(method, [3, 5, 5], 0.0, 0.9)
    assert token.dtype == torch.int64
    assert token.tolist() == [[5]]
    before = counters()
    (token,) = method.execute([token, torch.tensor([3]), torch.tensor([0.0]), torch.tensor([0.0])])
    counted = {name: count - before.get(name, 0) for name, count in counters().items()}
    assert token.tolist() == [[5]]
    assert (counted["bytes_h2d"], counted["bytes_d2h"]) == (8 + 8 + 4 + 4, 8)


def test_the_program_knows_its_vocabulary(pte):
    assert load_program(pte).load_method("get_vocab_size").execute([]) == [VOCABULARY]


def test_tokens_come_as_often_as_they_are_likely(pte):
    """The counting model's logits are how often a token was said: 1, 2, 0, 0, ..."""
    method = load_method(pte)
    numbers = (torch.arange(400) / 400).tolist()
    for temperature in (1.0, 0.5):
        counts = Counter(int(sample(method, [3, 5, 5], temperature, n)) for n in numbers)
        logits = torch.zeros(VOCABULARY)
        logits[3], logits[5] = 1, 2
        expected = (logits / temperature).softmax(-1) * 400
        for token in range(VOCABULARY):
            assert abs(counts[token] - float(expected[token])) <= 2, (temperature, token)


@pytest.mark.parametrize("random", [0.0, 0.5, 1 - 2**-24, 1.0])
@pytest.mark.parametrize("temperature", [-1.0, 0.0, 1e-30, 1e-3])
def test_a_cold_sample_is_the_most_likely_token(temperature, random):
    logits = torch.full((1, 1, 50), -1e4)
    logits[0, 0, 7] = 1e4

    def decoder(ids: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return logits

    module = SamplingDecoder(torch.nn.Identity())
    module.decoder.forward = decoder
    zeros = torch.zeros(1, dtype=torch.long)
    token = module(zeros[None], zeros, torch.tensor([temperature]), torch.tensor([random]))
    assert token.tolist() == [[7]]


def test_sampling_returns_no_logits():
    with pytest.raises(OptionError, match="cannot be combined with all_logits=True"):
        export_llm(CountingModel(8), cache_length=8, sampling=True, all_logits=True)
