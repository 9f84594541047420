"""Transducers as ExecuTorch's TransducerRunner and its example of Parakeet call them."""

from __future__ import annotations

import pytest
import torch

from tests.support.programs.speech_models import (
    BINS,
    BLANK,
    FRAMES,
    run_transducer,
    spoken,
    transducer,
    transducer_tokens,
)
from tests.support.simulated_gpus import load_program
from trt_et.inspection import inspect_program
from trt_et.llm import export_transducer

METHODS = ("encoder", "decoder_step", "joint")

# Of what the runners read; a TDT has five durations.
CONSTANTS = {
    "num_rnn_layers": [2],
    "pred_hidden": [24],
    "joint_hidden": [24],
    "vocab_size": [BLANK],
    "blank_id": [BLANK],
    "sample_rate": [16000],
    "window_stride": [0.01],
    "encoder_subsampling_factor": [8],
}


# The most frames, recordings of so many frames and so many that are no padding, and the durations.
TRANSDUCERS = {
    "TDT": (FRAMES, ((FRAMES, FRAMES), (160, 131), (9, 9)), [0, 1, 2, 3, 4]),
    "RNNT": (64, ((64, 64), (64, 41)), [0, 1]),
}


@pytest.mark.long
@pytest.mark.parametrize("name", TRANSDUCERS)
def test_a_transducer_says_what_transformers_says(name):
    most, recordings, durations = TRANSDUCERS[name]
    model = transducer(name)
    pte = bytes(export_transducer(model, frames=most, builder="reference").buffer)
    methods = {method.name: method for method in inspect_program(pte)}
    assert [len(methods[method].delegates) for method in METHODS] == [1, 1, 1]
    assert not any(methods[method].operator_calls for method in METHODS)
    program = load_program(pte)
    names = program.method_names - set(METHODS)
    assert {each: list(program.load_method(each).execute([])) for each in names} == {
        **CONSTANTS,
        "durations": durations,
    }
    said = set()
    for frames, length in recordings:
        features = spoken(frames)
        padded = torch.nn.functional.pad(features, (0, -frames % 8))
        found = run_transducer(program, padded, length)
        assert found == transducer_tokens(model, features, length)
        said |= set(found)
    assert len(said) > 1
    encoder = program.load_method("encoder")
    double = torch.zeros(1, BINS, 64, dtype=torch.float64)
    for features in (torch.zeros(1, BINS, most + 8), double):
        with pytest.raises(RuntimeError, match=r"error 0x1[02]"):
            encoder.execute([features, torch.tensor([64])])


@pytest.mark.long
def test_tensorrt_rtx_builds_an_engine_a_method():
    pte = bytes(export_transducer(transducer("TDT"), frames=64, builder="tensorrt_rtx").buffer)
    methods = {method.name: method for method in inspect_program(pte)}
    assert [len(methods[method].delegates) for method in METHODS] == [1, 1, 1]
