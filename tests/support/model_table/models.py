"""The models of the table: how each is exported, and what it is compared with.

A model of a runner says the tokens that eager says; every other one returns eager's tensors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.support.programs import executorch_llama, language_models, multimodal_models
from tests.support.programs import speech_models as speech
from tests.support.zoo import lowered
from trt_et.llm import export_llm, export_multimodal, export_speech

PROMPTS = (1, 7, 33, 100)
_NEW_TOKENS = 64

# Writes the program for a builder.
Export = Callable[[str], bytes]
# Runs a program in a folder, and returns what was compared; raises AssertionError.
Compare = Callable[[bytes, Path], str]


@dataclass
class Model:
    module: nn.Module  # For its weights.
    export: Export
    compare: Compare  # A program of reference engines, with eager.


def _zoo(name: str) -> Model:
    case = lowered.make(name)
    eager = copy.deepcopy(case.model)

    def compare(pte: bytes, folder: Path) -> str:
        return f"within {lowered.compare(case, eager, pte):.0e}"

    return Model(case.model, lambda builder: lowered.lower(case, builder)[0], compare)


def _says(answer: Callable[[list[int]], list[int]]) -> Compare:
    def compare(pte: bytes, folder: Path) -> str:
        runner = language_models.Runner(folder, pte)
        for length in PROMPTS:
            text, ids = language_models.make_prompt(length)
            assert runner.answer(text, _NEW_TOKENS) == answer(ids), f"prompt of {length}"
        return f"{_NEW_TOKENS} tokens after prompts of {', '.join(map(str, PROMPTS))}"

    return compare


def _transformers(name: str) -> Model:
    module = language_models.make_model(name)

    def export(builder: str) -> bytes:
        options: dict[str, Any] = {"eos_ids": language_models.NO_END, "builder": builder}
        return bytes(export_llm(module, cache_length=192, max_prompt=128, **options).buffer)

    def answer(ids: list[int]) -> list[int]:
        return language_models.eager_answer(module, ids, _NEW_TOKENS)

    return Model(module, export, _says(answer))


def _executorch(name: str) -> Model:
    def make() -> nn.Module:
        return executorch_llama.make(**executorch_llama.KINDS[name])

    eager = make()
    return Model(
        eager,
        lambda builder: executorch_llama.lower(make(), builder),
        _says(lambda ids: executorch_llama.eager_answer(eager, ids)),
    )


def _multimodal(name: str) -> Model:
    from executorch.extension.llm.runner import make_audio_input, make_image_input, make_text_input

    images = name != "voxtral"
    module = getattr(multimodal_models, name)()
    example = multimodal_models.IMAGE if images else multimodal_models.SOUND
    given = {"image" if images else "audio": example}

    def export(builder: str) -> bytes:
        options = {**multimodal_models.OPTIONS, "builder": builder}
        return bytes(export_multimodal(module, **given, **options).buffer)

    def compare(pte: bytes, folder: Path) -> str:
        runner = multimodal_models.Runner(folder, pte)
        read: Any = torch.rand(example.shape, generator=torch.Generator().manual_seed(1))
        if images:
            pixels = read if name == "llava" else read[None]
            first, inputs, count = make_image_input(read[0]), {"pixel_values": pixels}, 16
        else:
            first, inputs = make_audio_input(read), {"input_features": read}
            count = module.get_audio_features(read).pooler_output.shape[0]
        for length in (1, 33):
            text, ids = language_models.make_prompt(length)
            found = runner.answer(first, make_text_input(text))
            prompt = [*[multimodal_models.PLACE] * count, *ids]
            assert found == multimodal_models.eager_answer(module, prompt, **inputs), length
        return f"{len(found)} tokens after {'an image' if images else 'sound'} and a text"

    return Model(module, export, compare)


def _whisper(name: str) -> Model:
    from executorch.runtime import Runtime

    module = speech.whisper()

    def compare(pte: bytes, folder: Path) -> str:
        program = Runtime.get().load_program(pte)
        encoder, decoder = (program.load_method(part) for part in ("encoder", "text_decoder"))
        features = speech.sound(1)
        (hidden,) = encoder.execute([features])
        ids = [speech.START]
        for position in range(speech.TOKENS):
            inputs = [torch.tensor([ids[-1:]]), hidden, torch.tensor([position])]
            (logits,) = decoder.execute(inputs)
            ids.append(int(logits.argmax()))
        assert ids == speech.greedy(module, features)
        return f"{speech.TOKENS} tokens of a transcription"

    return Model(
        module, lambda builder: bytes(export_speech(module, builder=builder).buffer), compare
    )


# The kinds of models: their names, and what makes one by its name.
KINDS: dict[str, tuple[tuple[str, ...], Callable[[str], Model]]] = {
    "Language models of transformers, by `export_llm`, in `TextLLMRunner`": (
        tuple(language_models.CONFIGURATIONS),
        _transformers,
    ),
    "ExecuTorch's own language models, in `TextLLMRunner`": (
        tuple(executorch_llama.KINDS),
        _executorch,
    ),
    "Images, sound and text, by `export_multimodal`, in `MultimodalRunner`": (
        ("llava", "smolvlm", "voxtral"),
        _multimodal,
    ),
    "Speech, by `export_speech`": (("whisper",), _whisper),
    "Models of `tests/zoo`": (tuple(lowered.MODELS), _zoo),
}
