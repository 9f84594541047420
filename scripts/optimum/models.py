"""Folders with small random models, one for each task of ``optimum-executorch``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as tf

VOCABULARY = 64
LENGTH = 64
WINDOW = 16
IMAGE = torch.zeros(1, 3, 16, 16)
SOUND = torch.zeros(2, 8, 32)
_TEXT = {
    **{"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": LENGTH},
}
_VISION = {
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "image_size": 16, "patch_size": 4},
}
_DECODER = {**_TEXT, "num_key_value_heads": 2, "head_dim": 8, "eos_token_id": VOCABULARY - 1}
_TWO_SIDES = {
    **{"vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 1},
    **{"encoder_attention_heads": 4, "encoder_ffn_dim": 64},
    **{"decoder_attention_heads": 4, "decoder_ffn_dim": 64},
}
_WINDOW = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}


def llama() -> Any:
    return tf.LlamaForCausalLM(tf.LlamaConfig(**_DECODER))


def gemma3_text() -> Any:
    return tf.Gemma3ForCausalLM(
        tf.Gemma3TextConfig(**_DECODER, **_WINDOW, query_pre_attn_scalar=8, pad_token_id=0)
    )


def t5() -> Any:
    config = tf.T5Config(
        **{"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2},
        **{"num_heads": 4, "decoder_start_token_id": 0, "eos_token_id": VOCABULARY - 1},
    )
    return tf.T5ForConditionalGeneration(config)


def bart() -> Any:
    config = tf.BartConfig(**_TWO_SIDES, max_position_embeddings=LENGTH, decoder_layers=1)
    return tf.BartForConditionalGeneration(config)


def whisper() -> Any:
    config = tf.WhisperConfig(
        **{**_TWO_SIDES, "decoder_layers": 2, "num_mel_bins": 8},
        **{"max_source_positions": 50, "max_target_positions": LENGTH},
        **{"decoder_start_token_id": 1, "eos_token_id": VOCABULARY - 1, "pad_token_id": 0},
        **{"bos_token_id": 0, "suppress_tokens": None, "begin_suppress_tokens": None},
    )
    return tf.WhisperForConditionalGeneration(config)


def gemma3() -> Any:
    vision = {**_VISION, "num_hidden_layers": 1}
    # optimum exports it for texts that are shorter than the window.
    config = tf.Gemma3Config(
        text_config={**_DECODER, **_WINDOW, "sliding_window": 48, "query_pre_attn_scalar": 8},
        vision_config=vision,
        **{"mm_tokens_per_image": 4, "image_token_index": VOCABULARY - 2},
    )
    return tf.Gemma3ForConditionalGeneration(config)


def voxtral() -> Any:
    audio = {
        **{"hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 1},
        **{"num_attention_heads": 4, "num_mel_bins": 8, "max_source_positions": 16},
    }
    config = tf.VoxtralConfig(
        audio_config=audio,
        text_config={"model_type": "llama", **_DECODER},
        audio_token_id=VOCABULARY - 2,
    )
    return tf.VoxtralForConditionalGeneration(config)


def roberta() -> Any:
    return tf.RobertaForMaskedLM(tf.RobertaConfig(**_TEXT, pad_token_id=1))


def bert() -> Any:
    return tf.BertForMaskedLM(tf.BertConfig(**_TEXT))


def modernbert() -> Any:
    tokens = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2}
    return tf.ModernBertForMaskedLM(tf.ModernBertConfig(**_TEXT, **tokens, local_attention=16))


def vit() -> Any:
    return tf.ViTForImageClassification(tf.ViTConfig(**_VISION))


def write(make: Callable[[], Any], folder: Path) -> Any:
    """Make a model with fixed random weights, and store it and what optimum reads beside it."""
    torch.manual_seed(0)
    model = make().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    if make is whisper:
        _write_whisper_processor(model.config, folder)
    return model


def _write_whisper_processor(config: Any, folder: Path) -> None:
    """Store what optimum asks for the shape of the sound: twice as many frames as positions."""
    seconds = 2 * config.max_source_positions * 160 // 16000
    extractor = tf.WhisperFeatureExtractor(feature_size=config.num_mel_bins, chunk_length=seconds)
    letters = {chr(33 + index): index for index in range(VOCABULARY - 1)}
    (folder / "vocab.json").write_text(json.dumps({**letters, "<|endoftext|>": VOCABULARY - 1}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = tf.WhisperTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    tf.WhisperProcessor(extractor, tokenizer).save_pretrained(folder)
