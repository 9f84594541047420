"""Whisper as ExecuTorch's AsrRunner calls it: an encoder, and a decoder of one token."""

from __future__ import annotations

import pytest
import torch

from tests.support.programs.speech_models import (
    POSITIONS,
    START,
    TOKENS,
    VOCABULARY,
    greedy,
    sound,
    whisper,
)
from tests.support.simulated_gpus import load_program
from trt_et.inspection import inspect_program
from trt_et.llm import export_speech
from trt_et.runtime import counters


@pytest.mark.long
def test_transcriptions_are_those_of_eager():
    """Without shared state, with and without a sampler: tests/runtime/test_cpp_example.py."""
    model = whisper()
    pte = bytes(export_speech(model, builder="reference").buffer)
    methods = {method.name: method for method in inspect_program(pte)}
    assert [len(methods[name].delegates) for name in ("encoder", "text_decoder")] == [1, 1]
    program = load_program(pte)
    assert program.load_method("get_eos_ids").execute([]) == [127]
    encoder, decoder = (program.load_method(name) for name in ("encoder", "text_decoder"))
    for seed in (1, 2):
        features = sound(seed)
        (hidden,) = encoder.execute([features])
        torch.testing.assert_close(hidden, model.model.encoder(features).last_hidden_state)
        ids = [START]
        for position in range(TOKENS):
            before = counters()
            token, at = torch.tensor([ids[-1:]]), torch.tensor([position])
            (logits,) = decoder.execute([token, hidden, at])
            ids.append(int(logits.argmax()))
        counted = {name: count - before.get(name, 0) for name, count in counters().items()}
        # The encoder's output stays where the encoder left what the decoder needs of it.
        assert (counted["bytes_h2d"], counted["bytes_d2h"]) == (8 + 8, 4 * VOCABULARY)
        assert ids == greedy(model, features)
        assert len(set(ids)) > 4
    with pytest.raises(RuntimeError, match="0x12"):
        decoder.execute([token, hidden, torch.tensor([TOKENS + 4])])


@pytest.mark.long
def test_tensorrt_rtx_writes_all_keys_and_values_in_place():
    pte = bytes(export_speech(whisper(), builder="tensorrt_rtx", cache_length=8).buffer)
    methods = {method.name: method for method in inspect_program(pte)}
    found = {}
    for name in ("encoder", "text_decoder"):
        (delegate,) = methods[name].delegates
        assert delegate.engine is not None
        shapes = {binding.name: binding.shape for binding in delegate.engine.inputs}
        found[name] = sorted(shapes[alias.input] for alias in delegate.engine.aliases)
    cross = [(1, 2, POSITIONS + 1, 16)] * 4
    assert found == {"encoder": cross, "text_decoder": [(1, 2, 8, 16)] * 4 + cross}
