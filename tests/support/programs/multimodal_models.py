"""Small random models of text and images, and of text and sound, and ExecuTorch's runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers as tf

from tests.support.programs.language_models import NO_END, TOKENS, VOCABULARY, write_tokenizer
from tests.support.simulated_gpus import load_runtime

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
