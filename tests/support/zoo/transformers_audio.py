"""Models of sound of the ``transformers`` package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf

from tests.support.zoo.case import Case
from tests.support.zoo.transformers_configs import TEXT, VOCABULARY, Fields, random_tokens

__all__ = ["MODELS"]


def _whisper(**more: Any) -> tf.WhisperModel:
    config = tf.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=1,
        encoder_attention_heads=4,
        decoder_layers=1,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=50,
        pad_token_id=0,
        **more,
    )
    return tf.WhisperModel(config)


def whisper_encoder() -> Case:
    encoder = _whisper().get_encoder()
    return Case(
        Fields(encoder, ("input_features",), ("last_hidden_state",)), (torch.randn(1, 16, 100),)
    )


def whisper() -> Case:
    keys = ("input_features", "decoder_input_ids")
    return Case(
        Fields(_whisper(use_cache=False), keys, ("last_hidden_state",)),
        (torch.randn(1, 16, 100), random_tokens(1, 6)),
    )


def wav2vec2() -> Case:
    text = {k: v for k, v in TEXT.items() if k != "max_position_embeddings"}
    config = tf.Wav2Vec2Config(
        **text,
        conv_dim=[16, 16],
        conv_stride=[5, 2],
        conv_kernel=[10, 3],
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    return Case(
        Fields(tf.Wav2Vec2Model(config), ("input_values",), ("last_hidden_state",)),
        (torch.randn(1, 400),),
    )


def conformer() -> Case:
    text = {k: v for k, v in TEXT.items() if k != "max_position_embeddings"}
    text.pop("attn_implementation")
    config = tf.Wav2Vec2ConformerConfig(
        **text,
        conv_dim=[16, 16],
        conv_stride=[5, 2],
        conv_kernel=[10, 3],
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        position_embeddings_type="rotary",
    )
    return Case(
        Fields(tf.Wav2Vec2ConformerModel(config), ("input_values",), ("last_hidden_state",)),
        (torch.randn(1, 400),),
    )


MODELS: dict[str, Callable[[], Case]] = {
    "whisper_encoder": whisper_encoder,
    "whisper": whisper,
    "wav2vec2": wav2vec2,
    "conformer": conformer,
}
