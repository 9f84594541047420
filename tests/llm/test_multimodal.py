"""Models of text and images, and of text and sound, in ExecuTorch's MultimodalRunner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf

from tests.support.programs.language_models import (
    NO_END,
    TOKENS,
    VOCABULARY,
    make_model,
    make_prompt,
    write_tokenizer,
)
from tests.support.simulated_gpus import load_runtime
from trt_et import OptionError, UnsupportedModelError
from trt_et.inspection import inspect_program
from trt_et.llm import export_multimodal

NEW_TOKENS = 24
PLACE = VOCABULARY - 1  # The token that stands for a part of an image, or of sound.
IMAGE = torch.zeros(1, 3, 16, 16)
SOUND = torch.zeros(1, 8, 32)
OPTIONS: dict[str, Any] = {"cache_length": 96, "builder": "reference", "eos_ids": NO_END}
TEXT: dict[str, Any] = {
    **{"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128},
    **{"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"max_position_embeddings": 512},
}


def llava() -> tf.PreTrainedModel:
    torch.manual_seed(0)
    vision = tf.CLIPVisionConfig(
        **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "image_size": 16, "patch_size": 4, "projection_dim": 32},
    )
    config = tf.LlavaConfig(
        text_config=tf.LlamaConfig(**TEXT), vision_config=vision, image_token_index=PLACE
    )
    return tf.LlavaForConditionalGeneration(config).eval()


def voxtral() -> tf.PreTrainedModel:
    torch.manual_seed(0)
    audio = {
        **{"hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "num_mel_bins": 8, "max_source_positions": 16},
    }
    config = tf.VoxtralConfig(
        audio_config=audio,
        text_config={"model_type": "llama", **TEXT, "head_dim": 16},
        audio_token_id=PLACE,
    )
    return tf.VoxtralForConditionalGeneration(config).eval()


class Runner:
    """ExecuTorch's ``MultimodalRunner``, on the simulated GPUs of this process."""

    def __init__(self, folder: Path, pte: bytes) -> None:
        from executorch.extension.llm.runner import MultimodalRunner

        load_runtime()
        (folder / "model.pte").write_bytes(pte)
        self._runner = MultimodalRunner(str(folder / "model.pte"), str(write_tokenizer(folder)))

    def answer(self, *inputs: Any) -> list[int]:
        """What the program says greedily after these inputs, as a new conversation."""
        from executorch.extension.llm.runner import GenerationConfig

        pieces: list[str] = []
        settings = GenerationConfig(echo=False, max_new_tokens=NEW_TOKENS, temperature=0.0)
        self._runner.reset()
        self._runner.generate(list(inputs), settings, pieces.append)
        return [TOKENS.index(piece) for piece in pieces]


def eager_answer(model: tf.PreTrainedModel, ids: list[int], **inputs: Any) -> list[int]:
    with torch.no_grad():
        tokens = model.generate(
            input_ids=torch.tensor([ids]),
            **{"max_new_tokens": NEW_TOKENS, "do_sample": False, "eos_token_id": None},
            **{"pad_token_id": 0, **inputs},
        )
    return tokens[0, len(ids) :].tolist()


def check(pte: bytes, encoder: str) -> None:
    methods = {method.name: method for method in inspect_program(pte)}
    assert len(methods["text_decoder"].delegates) == 1
    assert len(methods[encoder].delegates) == 1
    assert methods["token_embedding"].cpu_operators == ("aten::embedding.out",)


@pytest.mark.parametrize("length", [1, 33])
def test_an_image_between_two_texts(length, tmp_path):
    from executorch.extension.llm.runner import make_image_input, make_text_input

    model = llava()
    pte = bytes(export_multimodal(model, image=IMAGE, **OPTIONS).buffer)
    check(pte, "vision_encoder")
    runner = Runner(tmp_path, pte)
    text, ids = make_prompt(length)
    for seed in (1, 2):
        image = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(seed))
        found = runner.answer(
            make_text_input(text[:1]), make_image_input(image), make_text_input(text)
        )
        prompt = [ids[0], *[PLACE] * 16, *ids]
        assert found == eager_answer(model, prompt, pixel_values=image[None])


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


def gemma3() -> tf.PreTrainedModel:
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 16, "patch_size": 4}
    config = tf.Gemma3Config(
        text_config={**TEXT, "head_dim": 16}, vision_config=vision, mm_tokens_per_image=4
    )
    return tf.Gemma3ForConditionalGeneration(config)


@pytest.mark.parametrize(
    ("make", "inputs", "message"),
    [
        (llava, {}, "image and audio are None"),
        (llava, {"audio": SOUND}, "LlavaForConditionalGeneration has no get_audio_features"),
        (llava, {"image": IMAGE.half()}, r"the example of vision_encoder is torch\.float16"),
        (gemma3, {"image": IMAGE}, r"forward takes token_type_ids"),
        (lambda: make_model("llama"), {"image": IMAGE}, "has no get_image_features"),
        (llava, {"image": IMAGE, "max_prompt": 97}, "the cache holds 96 tokens"),
    ],
)
def test_what_the_runner_cannot_run_is_refused(make, inputs, message):
    with pytest.raises((OptionError, UnsupportedModelError), match=message):
        export_multimodal(make(), **inputs, **OPTIONS)
