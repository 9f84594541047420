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
    whisper,
)
from tests.support.simulated_gpus import load_program
from trt_et import OptionError, UnsupportedModelError
from trt_et.inspection import inspect_program
from trt_et.llm import export_transducer

METHODS = ("encoder", "decoder_step", "joint")


@pytest.mark.parametrize("name", ["TDT", "RNNT"])
def test_a_transducer_says_what_transformers_says(name):
    model = transducer(name)
    pte = bytes(export_transducer(model, frames=FRAMES, builder="reference").buffer)
    methods = {method.name: method for method in inspect_program(pte)}
    assert [len(methods[method].delegates) for method in METHODS] == [1, 1, 1]
    assert not any(methods[method].operator_calls for method in METHODS)
    program = load_program(pte)
    said = set()
    for frames, length in ((FRAMES, FRAMES), (160, 131), (57, 57), (9, 9)):
        features = spoken(frames)
        padded = torch.nn.functional.pad(features, (0, -frames % 8))
        found = run_transducer(program, padded, length)
        assert found == transducer_tokens(model, features, length)
        said |= set(found)
    assert len(said) > 1


def test_a_program_says_what_the_runners_ask_for():
    pte = export_transducer(transducer("RNNT"), frames=64, builder="reference").buffer
    program = load_program(bytes(pte))
    said = {
        name: list(program.load_method(name).execute([]))
        for name in program.method_names - set(METHODS)
    }
    assert said == {
        "num_rnn_layers": [2],
        "pred_hidden": [24],
        "joint_hidden": [24],
        "vocab_size": [BLANK],
        "blank_id": [BLANK],
        "sample_rate": [16000],
        "window_stride": [0.01],
        "encoder_subsampling_factor": [8],
        "durations": [0, 1],
    }
    encoder = program.load_method("encoder")
    for features in (torch.zeros(1, BINS, 72), torch.zeros(1, BINS, 64, dtype=torch.float64)):
        with pytest.raises(RuntimeError, match=r"error 0x1[02]"):
            encoder.execute([features, torch.tensor([64])])


def test_tensorrt_rtx_builds_an_engine_a_method():
    pte = bytes(export_transducer(transducer("TDT"), frames=64, builder="tensorrt_rtx").buffer)
    methods = {method.name: method for method in inspect_program(pte)}
    assert [len(methods[method].delegates) for method in METHODS] == [1, 1, 1]


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (whisper, {"frames": 64}, "WhisperForConditionalGeneration is no transducer"),
        (
            lambda: transducer("TDT"),
            {"frames": 16},
            "frames is 16; expected a multiple of 8 from 24 to 1600",
        ),
        (lambda: transducer("TDT"), {"frames": 9999}, "from 24 to 1600"),
        (lambda: transducer("TDT"), {"frames": 64, "device": "cpu"}, "device 'cpu' is not a GPU"),
    ],
)
def test_what_cannot_be_exported_is_refused_before_an_export(make, options, message, monkeypatch):
    monkeypatch.setattr(torch.export, "export", None)
    with pytest.raises((OptionError, UnsupportedModelError), match=message):
        export_transducer(make(), builder="reference", **options)
