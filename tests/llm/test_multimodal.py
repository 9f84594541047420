"""Models of text and images, and of text and sound, in ExecuTorch's MultimodalRunner."""

from __future__ import annotations

import pytest
import torch

from tests.support.programs.language_models import make_prompt
from tests.support.programs.multimodal_models import (
    IMAGE,
    OPTIONS,
    PLACE,
    SOUND,
    Runner,
    eager_answer,
    llava,
    smolvlm,
    voxtral,
)
from tests.support.sampled import chosen
from trt_et.inspection import inspect_program
from trt_et.llm import export_multimodal

OF_IMAGES = {"llava": llava, "smolvlm": smolvlm}


def check(pte: bytes, encoder: str) -> None:
    methods = {method.name: method for method in inspect_program(pte)}
    assert len(methods["text_decoder"].delegates) == 1
    assert len(methods[encoder].delegates) == 1
    assert methods["token_embedding"].cpu_operators == ("aten::embedding.out",)


@pytest.mark.parametrize("name", chosen(OF_IMAGES))
def test_an_image_between_two_texts(name, tmp_path):
    from executorch.extension.llm.runner import make_image_input, make_text_input

    model = OF_IMAGES[name]()
    pte = bytes(export_multimodal(model, image=IMAGE, **OPTIONS).buffer)
    check(pte, "vision_encoder")
    runner = Runner(tmp_path, pte)
    for seed, length in ((1, 1), (2, 33)):
        text, ids = make_prompt(length)
        image = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(seed))
        found = runner.answer(
            make_text_input(text[:1]), make_image_input(image), make_text_input(text)
        )
        prompt = [ids[0], *[PLACE] * 16, *ids]
        pixels = image[None] if name == "llava" else image[None, None]
        assert found == eager_answer(model, prompt, pixel_values=pixels)


@pytest.mark.long
def test_sound_before_a_text(tmp_path):
    from executorch.extension.llm.runner import make_audio_input, make_text_input

    model = voxtral()
    pte = bytes(export_multimodal(model, audio=SOUND, **OPTIONS).buffer)
    check(pte, "audio_encoder")
    sound = torch.rand(1, 8, 32, generator=torch.Generator().manual_seed(1))
    text, ids = make_prompt(7)
    found = Runner(tmp_path, pte).answer(make_audio_input(sound), make_text_input(text))
    count = model.get_audio_features(sound).pooler_output.shape[0]
    assert found == eager_answer(model, [*[PLACE] * count, *ids], input_features=sound)
