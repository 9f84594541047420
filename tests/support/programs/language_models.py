"""Small random language models, and a tokenizer whose tokens are told apart in the output."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers as tf

from tests.support.sampled import chosen

VOCABULARY = 128
NO_END = VOCABULARY  # As eos_ids: no token ends a text.
_LETTERS = [chr(code) for code in range(33, 127)]
_PAIRS = list(product(_LETTERS[:6], repeat=2))[: VOCABULARY - len(_LETTERS)]
TOKENS = _LETTERS + ["".join(pair) for pair in _PAIRS]

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
# Shorter than the prompts, so that some positions are outside of it.
_WINDOW = {**SIZES, "head_dim": 16, "sliding_window": 16}
_HYBRID = {
    **_WINDOW,
    "num_hidden_layers": 2,
    "query_pre_attn_scalar": 16,
    "layer_types": ["sliding_attention", "full_attention"],
}
# Of Llama 3, for texts longer than those of its first training.
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
# Attention after a layer whose state has a fixed size.
_LINEAR = {
    **SIZES,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
}
_DELTA_RULE = {
    **_LINEAR,
    "head_dim": 16,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
_MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 2,
    "mamba_chunk_size": 16,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_ROUTED = {
    **{name: count for name, count in _EXPERTS.items() if name != "num_experts"},
    "n_routed_experts": 4,
    "num_hidden_layers": 2,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
_LATENT = {
    **SIZES,
    **_ROUTED,
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
}
CONFIGURATIONS: dict[str, Callable[[], tf.PretrainedConfig]] = {
    "llama": lambda: tf.LlamaConfig(**SIZES),
    "llama, scaled angles": lambda: tf.LlamaConfig(**SIZES, rope_parameters=_LLAMA3),
    "llama, one key-value head": lambda: tf.LlamaConfig(
        **{**SIZES, "num_key_value_heads": 1, "head_dim": 80}
    ),
    "qwen2": lambda: tf.Qwen2Config(**SIZES),
    "qwen2, sliding window": lambda: tf.Qwen2Config(
        **{**SIZES, "num_hidden_layers": 2},
        use_sliding_window=True,
        sliding_window=16,
        max_window_layers=1,
    ),
    "qwen3": lambda: tf.Qwen3Config(**SIZES, head_dim=16),
    "gemma": lambda: tf.GemmaConfig(**SIZES, head_dim=16),
    "gemma2": lambda: tf.Gemma2Config(**_HYBRID),
    "gemma3": lambda: tf.Gemma3TextConfig(**_HYBRID),
    "mistral": lambda: tf.MistralConfig(**_WINDOW),
    "phi3": lambda: tf.Phi3Config(**SIZES, pad_token_id=0),
    "llama4": lambda: tf.Llama4TextConfig(
        **{**SIZES, "num_hidden_layers": 2, "head_dim": 16},
        intermediate_size_mlp=64,
        num_local_experts=2,
        attention_chunk_size=16,
        pad_token_id=0,
    ),
    "apertus": lambda: tf.ApertusConfig(**SIZES, pad_token_id=0),
    "gemma3n": lambda: tf.Gemma3nTextConfig(
        **{
            **_WINDOW,
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
        num_kv_shared_layers=2,
        vocab_size_per_layer_input=VOCABULARY,
        hidden_size_per_layer_input=16,
        laurel_rank=8,
        altup_num_inputs=2,
        activation_sparsity_pattern=[0.0] * 4,
        pad_token_id=0,
    ),
    "olmoe": lambda: tf.OlmoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2),
    "glm4 moe": lambda: tf.Glm4MoeConfig(**SIZES | _ROUTED, head_dim=16),
    "deepseek v2": lambda: tf.DeepseekV2Config(**_LATENT, topk_method="group_limited_greedy"),
    "deepseek v3": lambda: tf.DeepseekV3Config(**_LATENT),
    "lfm2": lambda: tf.Lfm2Config(
        **{**SIZES, "num_hidden_layers": 2}, layer_types=["conv", "full_attention"]
    ),
    "lfm2 moe": lambda: tf.Lfm2MoeConfig(
        **{**SIZES, "num_hidden_layers": 2},
        **_EXPERTS,
        num_dense_layers=1,
        layer_types=["conv", "full_attention"],
    ),
    "mamba2": lambda: tf.Mamba2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_heads=8,
        head_dim=16,
        state_size=16,
        n_groups=2,
        num_hidden_layers=1,
        chunk_size=16,
    ),
    "falcon h1": lambda: tf.FalconH1Config(**SIZES, **_MAMBA2, mamba_d_ssm=128),
    "bamba": lambda: tf.BambaConfig(
        **{**SIZES, "num_hidden_layers": 2}, **_MAMBA2, attn_layer_indices=[1], attn_rotary_emb=8
    ),
    "granite hybrid": lambda: tf.GraniteMoeHybridConfig(
        **_LINEAR,
        **_MAMBA2,
        shared_intermediate_size=64,
        num_local_experts=4,
        num_experts_per_tok=2,
    ),
    "qwen3 next": lambda: tf.Qwen3NextConfig(
        **_DELTA_RULE, **_EXPERTS, shared_expert_intermediate_size=32
    ),
    "qwen3.5": lambda: tf.Qwen3_5TextConfig(
        **_DELTA_RULE,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [2, 1, 1],
        },
    ),
}

NAMES = chosen(CONFIGURATIONS, "llama")


def make_model(name: str, **changes: object) -> tf.PreTrainedModel:
    """A model with random weights; ``changes`` are fields of its configuration."""
    torch.manual_seed(0)
    configuration = CONFIGURATIONS[name]()
    for field, value in changes.items():
        setattr(configuration, field, value)
    model = tf.AutoModelForCausalLM.from_config(configuration).eval()
    if getattr(configuration, "_experts_implementation", None) is not None:
        model.set_experts_implementation("batched_mm")
    return model


def write_tokenizer(folder: Path) -> Path:
    """A tokenizer.json of ``TOKENS``, by their ids."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    ids = {token: index for index, token in enumerate(TOKENS)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=_PAIRS))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def make_prompt(length: int) -> tuple[str, list[int]]:
    letters = _LETTERS[6:]
    text = "".join(random.Random(length).choices(letters, k=length))
    return text, [TOKENS.index(letter) for letter in text]


def eager_answer(model: tf.PreTrainedModel, ids: list[int], count: int, **inputs: Any) -> list[int]:
    """What the model says greedily after these tokens."""
    options = {"max_new_tokens": count, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    with torch.no_grad():
        tokens = model.generate(input_ids=torch.tensor([ids]), **options, **inputs)
    return tokens[0, len(ids) :].tolist()


class Runner:
    """ExecuTorch's ``TextLLMRunner``, on the simulated GPUs of this process."""

    name = "TextLLMRunner"

    def __init__(self, folder: Path, pte: bytes) -> None:
        from executorch.extension.llm import runner

        from tests.support.simulated_gpus import load_runtime

        load_runtime()
        (folder / "model.pte").write_bytes(pte)
        make = getattr(runner, self.name)
        self._runner = make(str(folder / "model.pte"), str(write_tokenizer(folder)))

    def answer(self, text: str, count: int) -> list[int]:
        """What the program says greedily after a text, as a new conversation."""
        self._runner.reset()
        return self._generate(text, count)

    def read(self, text: str) -> None:
        """Begin a new conversation with a text."""
        self._runner.reset()
        self._runner.prefill(text, self._settings(1))

    def go_on(self, count: int) -> list[int]:
        """What the program says greedily after what it has read."""
        return self._generate("", count)

    def _generate(self, inputs: Any, count: int) -> list[int]:
        pieces: list[str] = []
        self._runner.generate(inputs, self._settings(count), pieces.append)
        return [TOKENS.index(piece) for piece in pieces]

    @staticmethod
    def _settings(count: int) -> Any:
        from executorch.extension.llm.runner import GenerationConfig

        return GenerationConfig(echo=False, max_new_tokens=count, temperature=0.0)


class CountingModel(torch.nn.Module):
    """A model with a cache of its own: logits of a token are what was said at all positions."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 1, length, VOCABULARY), persistent=False)
        self.rows = torch.nn.Parameter(torch.eye(VOCABULARY))

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        count = tokens.shape[1]
        at = position + torch.arange(count)
        self.cache.index_copy_(2, at, self.rows[tokens][:, None])
        known = torch.arange(self.cache.shape[2]) <= at[:, None]
        return known.to(self.cache.dtype) @ self.cache[:, 0]
