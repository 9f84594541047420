"""Two methods of one language model, which share its cache and its weights."""

from __future__ import annotations

import pytest
import torch

from tests.support.programs.language_models import (
    eager_answer,
    make_model,
    make_prompt,
)
from tests.support.simulated_gpus import load_program
from trt_et.inspection import inspect_program
from trt_et.llm import export_llm

NEW_TOKENS = 16


@pytest.mark.long
def test_the_methods_say_what_eager_says_and_the_file_has_the_weights_once():
    model = make_model("llama")
    options = {"cache_length": 128, "max_prompt": 64, "builder": "reference"}
    pte = bytes(export_llm(model, prefill_and_decode=True, **options).buffer)
    found = {m.name: len(m.delegates) for m in inspect_program(pte) if m.delegates}
    assert found == {"prefill": 1, "decode": 1}
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert len(pte) < 1.5 * weights
    program = load_program(pte)
    prefill, decode = program.load_method("prefill"), program.load_method("decode")
    # Each prompt after the first is read over the text before.
    for length in (33, 1, 7):
        _, ids = make_prompt(length)
        (logits,) = prefill.execute([torch.tensor([ids]), torch.tensor([0])])
        said = [int(logits.argmax())]
        while len(said) < NEW_TOKENS:
            inputs = [torch.tensor([said[-1:]]), torch.tensor([length + len(said) - 1])]
            (logits,) = decode.execute(inputs)
            said.append(int(logits.argmax()))
        assert said == eager_answer(model, ids, NEW_TOKENS)
    for method in (prefill, decode):
        with pytest.raises(RuntimeError, match="0x12"):
            method.execute([torch.tensor([[3]]), torch.tensor([128])])
        with pytest.raises(RuntimeError, match="0x12"):
            method.execute([torch.tensor([[3]], dtype=torch.int32), torch.tensor([0])])
