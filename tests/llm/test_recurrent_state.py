"""Models whose layers keep a state of fixed size: short convolutions, Mamba 2, the delta rule."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch

from tests.support.programs.language_models import VOCABULARY, eager_answer, make_model, make_prompt
from tests.support.sampled import chosen
from tests.support.simulated_gpus import load_method
from trt_et.inspection import inspect_program
from trt_et.llm import export_llm
from trt_et.runtime import counters

NEW_TOKENS = 64
MOST = 48  # Tokens of a call.
# A short convolution, Mamba 2 beside attention in one layer, and a gated delta rule.
FAMILIES = ("lfm2", "falcon h1", "qwen3.5")
OPTIONS = {"cache_length": 192, "max_prompt": MOST}


class Exported(NamedTuple):
    model: Any
    pte: bytes


@pytest.fixture(scope="module", params=chosen(FAMILIES))
def exported(request) -> Exported:
    model = make_model(request.param)
    return Exported(model, bytes(export_llm(model, builder="reference", **OPTIONS).buffer))


def call(method: Any, ids: list[int], position: int) -> torch.Tensor:
    (logits,) = method.execute([torch.tensor([ids]), torch.tensor([position])])
    row: torch.Tensor = logits[0, 0].clone()
    return row


def test_every_call_returns_eagers_logits(exported):
    (delegate,) = inspect_program(exported.pte)[0].delegates
    assert not delegate.problem
    method = load_method(exported.pte)
    # Each text after the first one begins after another text's state.
    for length in (33, 1, 7, 100):
        _, ids = make_prompt(length)
        ids += eager_answer(exported.model, ids, NEW_TOKENS)
        with torch.no_grad():
            expected = exported.model(torch.tensor([ids])).logits[0]
        pieces = [*range(0, length, MOST), *range(length, len(ids))]
        for start, end in zip(pieces, [*pieces[1:], len(ids)], strict=True):
            end = min(end, length) if start < length else end
            found = call(method, ids[start:end], start)
            torch.testing.assert_close(found, expected[end - 1], rtol=1e-4, atol=1e-5)
            assert found.argmax() == expected[end - 1].argmax()


def test_no_state_crosses_the_host(exported):
    method = load_method(exported.pte)
    call(method, [3, 4], 0)
    before = counters()
    call(method, [5], 2)
    counted = {name: count - before.get(name, 0) for name, count in counters().items()}
    assert (counted["bytes_h2d"], counted["bytes_d2h"]) == (8 + 8, 4 * VOCABULARY)
    assert counted["mallocs"] == 0


def test_a_text_begins_or_goes_on_at_its_end(exported):
    """A recurrent state cannot go back, and skips no token."""
    method = load_method(exported.pte)
    expected = call(method, [3, 4, 5], 0)
    call(method, [3, 4], 0)
    for position in (1, 3, -2):
        before = counters()
        with pytest.raises(RuntimeError, match="0x12"):
            method.execute([torch.tensor([[5]]), torch.tensor([position])])
        assert counters() == before
    torch.testing.assert_close(call(method, [5], 2), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_tensorrt_rtx_builds_one_engine(name):
    pte = bytes(export_llm(make_model(name), builder="tensorrt_rtx", **OPTIONS).buffer)
    (delegate,) = inspect_program(pte)[0].delegates
    assert not delegate.problem
