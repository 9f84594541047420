"""Causal language models of the ``transformers`` package, with and without caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf
from torch import nn
from torch.export import Dim

from tests.support.zoo.case import Case
from tests.support.zoo.transformers_configs import TEXT, VOCABULARY, Decoder, random_tokens

__all__ = ["MODELS"]


class PastTensors(nn.Module):
    """A causal language model that takes its keys and values, and returns them longer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cache = tf.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(input_ids=tokens, past_key_values=cache, use_cache=True)
        kept = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        return (result.logits, *kept)


def _llama(layers: int) -> nn.Module:
    config = {**TEXT, "num_hidden_layers": layers, "num_key_value_heads": 2}
    return tf.LlamaForCausalLM(tf.LlamaConfig(**config))


def llama_prefill() -> Case:
    length = Dim("length", min=2, max=60)
    return Case(
        Decoder(_llama(1)),
        (random_tokens(1, 12),),
        ({1: length},),
        ((random_tokens(1, 7),), (random_tokens(1, 60),)),
    )


def llama_past() -> Case:
    """One token a call; keys and values come in and go out, longer each time."""
    # torch.export cannot prove its own stride guards for grouped heads with a dynamic past.
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**TEXT))
    past = tuple(torch.randn(1, 4, 6, 8) for _ in range(2))
    length = Dim("past", min=2, max=60)
    more = tuple(torch.randn(1, 4, 31, 8) for _ in range(2))
    return Case(
        PastTensors(model),
        (random_tokens(1, 1), *past),
        (None, tuple({2: length} for _ in past)),
        ((random_tokens(1, 1), *more),),
    )


def llama_static_cache() -> Case:
    """Keys and values in buffers: a prompt of any length, then a token a call."""
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    model = _llama(1).eval()
    model.generation_config = tf.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=64,
        cache_config={"batch_size": 1, "max_cache_len": 64, "device": "cpu"},
    )
    module = TorchExportableModuleWithStaticCache(model)
    length = Dim("length", min=1, max=32)
    prompt = (random_tokens(1, 5), torch.arange(5))
    steps = tuple((random_tokens(1, 1), torch.tensor([at])) for at in range(5, 12))
    return Case(
        _Static(module),
        prompt,
        ({1: length}, {0: length}),
        steps,
        strict=True,
    )


class _Static(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.module(input_ids=tokens, cache_position=position)


def gpt2() -> Case:
    config = tf.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=1, n_head=4, n_positions=64)
    length = Dim("length", min=2, max=60)
    return Case(
        Decoder(tf.GPT2LMHeadModel(config)),
        (random_tokens(1, 12),),
        ({1: length},),
        ((random_tokens(1, 40),),),
    )


def _causal(name: str, **more: Any) -> Callable[[], Case]:
    def case() -> Case:
        config = getattr(tf, f"{name}Config")(**{**TEXT, "num_key_value_heads": 2, **more})
        # The text half of a model of several kinds names its configuration only.
        model = getattr(tf, f"{name.removesuffix('Text')}ForCausalLM")(config)
        length = Dim("length", min=2, max=60)
        return Case(
            Decoder(model), (random_tokens(1, 12),), ({1: length},), ((random_tokens(1, 37),),)
        )

    return case


def mamba() -> Case:
    config = tf.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, state_size=4
    )
    return Case(Decoder(tf.MambaForCausalLM(config)), (random_tokens(1, 6),))


MODELS: dict[str, Callable[[], Case]] = {
    "llama_prefill": llama_prefill,
    "llama_past": llama_past,
    "llama_static_cache": llama_static_cache,
    "gpt2": gpt2,
    "gemma": _causal("Gemma", head_dim=8),
    "gemma2": _causal("Gemma2", head_dim=8, query_pre_attn_scalar=8, attn_implementation="eager"),
    "gemma3": _causal("Gemma3Text", head_dim=8, query_pre_attn_scalar=8, sliding_window=8),
    "qwen2": _causal("Qwen2"),
    "qwen3": _causal("Qwen3", head_dim=8),
    "mistral": _causal("Mistral"),
    "phi3": _causal("Phi3", pad_token_id=0),
    "opt": _causal("OPT", ffn_dim=64, word_embed_proj_dim=32),
    "gpt_neox": _causal("GPTNeoX"),
    "bloom": _causal("Bloom", n_layer=1, n_head=4, attn_implementation="eager"),
    "falcon": _causal("Falcon"),
    "mamba": mamba,
}
