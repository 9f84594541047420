"""A language model's layers on several GPUs."""

from __future__ import annotations

import pytest
import torch

from tests.support.programs.language_models import VOCABULARY, make_model
from tests.support.simulated_gpus import load_method
from trt_et.inspection import inspect_program
from trt_et.llm import export_llm
from trt_et.runtime import counters

HIDDEN = 64


@pytest.mark.long
def test_layers_on_two_gpus_are_two_engines_that_say_what_eager_says():
    model = make_model("llama", num_hidden_layers=3)
    pte = bytes(
        export_llm(model, cache_length=32, builder="reference", device=lambda n: n // 2).buffer
    )
    (method,) = (method for method in inspect_program(pte) if method.name == "forward")
    engines = [delegate.engine for delegate in method.delegates]
    assert [engine.device_id for engine in engines] == [0, 1]
    # Keys and values lie where their layer's engine is.
    cache = 4 * 2 * 2 * 32 * HIDDEN // 4
    planned = {use.device: use.planned_bytes for use in method.devices}
    assert planned["cuda:0"] >= 2 * cache
    assert planned["cuda:1"] >= cache
    forward = load_method(pte)
    ids = [3, 1, 4, 1, 5]
    for position in (0, 5, 6):
        before = counters()
        (logits,) = forward.execute([torch.tensor([ids[position:]]), torch.tensor([position])])
        moved = counters()["bytes_d2h"] - before["bytes_d2h"]
        expected = model(torch.tensor([ids])).logits[:, -1:]
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
        ids.append(int(logits.argmax()))
    # Between the engines one row of activations, angles and a mask cross the host; no cache does.
    assert moved < 4 * VOCABULARY + 8 * 4 * HIDDEN < cache
