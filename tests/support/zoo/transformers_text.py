"""Models of text of the ``transformers`` package: small configurations, random weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers as tf
from torch.export import Dim

from tests.support.zoo.case import Case
from tests.support.zoo.transformers_configs import TEXT, VOCABULARY, Fields, random_tokens

__all__ = ["MODELS"]


def bert() -> Case:
    config = tf.BertConfig(**TEXT)
    keys, fields = ("input_ids", "attention_mask"), ("last_hidden_state", "pooler_output")
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    batch, length = Dim("batch", max=4), Dim("length", min=2, max=64)
    return Case(
        Fields(tf.BertModel(config), keys, fields),
        (random_tokens(2, 12), mask),
        (({0: batch, 1: length}, {0: batch, 1: length}),),
        ((random_tokens(1, 33), torch.ones(1, 33, dtype=torch.long)),),
        # Torch-TensorRT's gather takes no dynamic shapes.
        left=("aten::gather.default", "aten::expand_copy.default", "aten::slice_copy.Tensor"),
    )


def distilbert() -> Case:
    config = tf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=64
    )
    model = tf.DistilBertForSequenceClassification(config)
    keys = ("input_ids", "attention_mask")
    return Case(
        Fields(model, keys, ("logits",)),
        (random_tokens(2, 12), torch.ones(2, 12, dtype=torch.long)),
    )


def roberta() -> Case:
    config = tf.RobertaConfig(**TEXT)
    return Case(
        Fields(tf.RobertaForTokenClassification(config), ("input_ids",), ("logits",)),
        (random_tokens(2, 12),),
    )


def deberta() -> Case:
    config = tf.DebertaV2Config(
        **{k: v for k, v in TEXT.items() if k != "attn_implementation"},
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
    )
    return Case(
        Fields(tf.DebertaV2Model(config), ("input_ids",), ("last_hidden_state",)),
        (random_tokens(2, 12),),
    )


def t5_encoder() -> Case:
    config = tf.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4
    )
    length = Dim("length", min=2, max=40)
    return Case(
        Fields(tf.T5EncoderModel(config), ("input_ids",), ("last_hidden_state",)),
        (random_tokens(2, 12),),
        (({1: length},),),
        ((random_tokens(2, 33),),),
    )


def t5() -> Case:
    config = tf.T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=1,
        num_heads=4,
        use_cache=False,
        decoder_start_token_id=0,
    )
    keys = ("input_ids", "decoder_input_ids")
    return Case(
        Fields(tf.T5ForConditionalGeneration(config), keys, ("logits",)),
        (random_tokens(1, 12), random_tokens(1, 5)),
    )


def bart() -> Case:
    config = tf.BartConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
        use_cache=False,
    )
    keys = ("input_ids", "decoder_input_ids")
    return Case(
        Fields(tf.BartModel(config), keys, ("last_hidden_state",)),
        (random_tokens(1, 12), random_tokens(1, 5)),
    )


MODELS: dict[str, Callable[[], Case]] = {
    "bert": bert,
    "distilbert": distilbert,
    "roberta": roberta,
    "deberta": deberta,
    "t5_encoder": t5_encoder,
    "t5": t5,
    "bart": bart,
}
