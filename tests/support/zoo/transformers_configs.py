"""What the models of the ``transformers`` package share: small configurations, inputs, wrappers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["TEXT", "VISION", "VOCABULARY", "Decoder", "Fields", "random_image", "random_tokens"]

VOCABULARY = 64

TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "attn_implementation": "sdpa",
}

VISION: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def random_tokens(*size: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, size)


def random_image(*size: int) -> torch.Tensor:
    return torch.randn(*size)


class Fields(nn.Module):
    """Calls a model by keyword and returns the named fields of what it returns."""

    def __init__(self, model: nn.Module, keys: tuple[str, ...], fields: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.keys = keys
        self.fields = fields

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = self.model(**dict(zip(self.keys, inputs, strict=True)))
        return tuple(getattr(result, field) for field in self.fields)


class Decoder(nn.Module):
    """A causal language model without its cache: logits of every token."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, use_cache=False).logits
