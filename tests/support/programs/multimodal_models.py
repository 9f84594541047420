"""Small random models of text and images, and of text and sound, and ExecuTorch's runner."""

from __future__ import annotations

from typing import Any

import torch
import transformers as tf

from tests.support.programs import language_models
from tests.support.programs.language_models import NO_END, SIZES, VOCABULARY

NEW_TOKENS = 24
PLACE = VOCABULARY - 1  # The token that stands for a part of an image, or of sound.
IMAGE = torch.zeros(1, 3, 16, 16)
SOUND = torch.zeros(1, 8, 32)
OPTIONS: dict[str, Any] = {"cache_length": 96, "builder": "reference", "eos_ids": NO_END}


def llava() -> tf.PreTrainedModel:
    torch.manual_seed(0)
    vision = tf.CLIPVisionConfig(
        **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "image_size": 16, "patch_size": 4, "projection_dim": 32},
    )
    config = tf.LlavaConfig(
        text_config=tf.LlamaConfig(**SIZES), vision_config=vision, image_token_index=PLACE
    )
    return tf.LlavaForConditionalGeneration(config).eval()


def smolvlm() -> tf.PreTrainedModel:
    torch.manual_seed(0)
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 3, "image_size": 16, "patch_size": 2}
    config = tf.SmolVLMConfig(
        **{"text_config": {"model_type": "llama", **SIZES}, "vision_config": vision},
        **{"image_token_id": PLACE, "scale_factor": 2},
    )
    return tf.SmolVLMForConditionalGeneration(config).eval()


def voxtral() -> tf.PreTrainedModel:
    torch.manual_seed(0)
    audio = {
        **{"hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "num_mel_bins": 8, "max_source_positions": 16},
    }
    config = tf.VoxtralConfig(
        audio_config=audio,
        text_config={"model_type": "llama", **SIZES, "head_dim": 16},
        audio_token_id=PLACE,
    )
    return tf.VoxtralForConditionalGeneration(config).eval()


class Runner(language_models.Runner):
    """ExecuTorch's ``MultimodalRunner``, on the simulated GPUs of this process."""

    name = "MultimodalRunner"

    def answer(self, *inputs: Any) -> list[int]:
        """What the program says greedily after these inputs, as a new conversation."""
        return super().answer(list(inputs), NEW_TOKENS)


def eager_answer(model: tf.PreTrainedModel, ids: list[int], **inputs: Any) -> list[int]:
    return language_models.eager_answer(model, ids, NEW_TOKENS, **inputs)
