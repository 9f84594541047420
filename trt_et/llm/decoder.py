"""Modules with the signature that ExecuTorch's runners call: tokens and a position to logits."""

from __future__ import annotations

import inspect
import logging
from typing import Any, Final

import torch
from torch import nn

from trt_et.errors import OptionError, UnsupportedModelError
from trt_et.llm.position_check import PositionCheck
from trt_et.llm.sliding_windows import WindowPositions
from trt_et.llm.static_cache import cache_input, make_static_cache, states_of

_log = logging.getLogger(__name__)

INPUTS: Final = ("input_ids", "cache_position")
_ATTENTION: Final = ("sdpa", "eager")
# What configurations call the number of experts.
_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts")


def make_decoder(
    model: nn.Module,
    cache_length: int,
    max_prompt: int,
    *,
    all_logits: bool = False,
    takes_embeddings: bool = False,
) -> nn.Module:
    """Make a module that maps ``input_ids`` [1, n] and ``cache_position`` [1] to logits.

    Args:
        model: A ``transformers`` causal language model, or a module that takes these two inputs
            and keeps its own KV cache.
        cache_length: Positions of the KV cache.
        max_prompt: Most tokens of one call.
        all_logits: Keep the logits of all tokens, not only of the last one.
        takes_embeddings: Take embeddings [1, n, width] in place of ``input_ids``; for models of
            ``transformers`` only.

    Raises:
        OptionError: The model has fewer positions than the cache.
        UnsupportedModelError: The model is of another kind, or has another kind of cache.
    """
    config = getattr(model, "config", None)
    if hasattr(config, "get_text_config"):
        _check_configuration(model, config, cache_length)
        first = "inputs_embeds" if takes_embeddings else INPUTS[0]
        cache, window = make_static_cache(model, cache_length, max_prompt, first)
        return _TransformersDecoder(model, cache, window, first, all_logits)
    names = list(inspect.signature(model.forward).parameters)
    if len(names) < 2:
        raise UnsupportedModelError(
            f"{type(model).__name__}.forward takes {names}; expected a transformers model, or a "
            f"module that takes {' and '.join(INPUTS)} and keeps its own KV cache"
        )
    return _ModuleDecoder(model, all_logits)


def rotary_frequencies(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the buffers that ``transformers`` computes rotary angles from, by their names."""
    return {name: b for name, b in model.named_buffers() if name.endswith("inv_freq")}


class CheckedDecoder(nn.Module):
    """A decoder that refuses positions beyond its cache."""

    def __init__(self, decoder: nn.Module, cache_length: int) -> None:
        super().__init__()
        self.decoder = decoder
        in_order = getattr(decoder, "in_order", False)
        self.check = PositionCheck(cache_length, in_order=in_order)

    def forward(self, input_ids: torch.Tensor, cache_position: torch.Tensor) -> torch.Tensor:
        """Return the logits of a call whose positions are in the cache."""
        position = self.check(cache_position, input_ids.shape[1])
        logits: torch.Tensor = self.decoder(input_ids, position)
        return logits


class _ModuleDecoder(nn.Module):
    """A module with its own KV cache."""

    def __init__(self, model: nn.Module, all_logits: bool) -> None:
        super().__init__()
        self.model = model
        self.all_logits = all_logits

    def forward(self, input_ids: torch.Tensor, cache_position: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids, cache_position)
        return logits if self.all_logits else logits[:, -1:]


class _TransformersDecoder(nn.Module):
    """A ``transformers`` model with a static cache in buffers.

    Attributes:
        in_order: The cache has recurrent states, so that a text cannot go on before its end.
    """

    def __init__(
        self,
        model: nn.Module,
        cache: Any,  # noqa: ANN401
        window: WindowPositions | None,
        first: str,
        all_logits: bool,
    ) -> None:
        super().__init__()
        self.model = model
        self.first = first
        self.cache = cache
        self.window = window
        # With this option, the output layer computes one row, not one per token.
        takes = inspect.signature(model.forward).parameters
        keep = not all_logits and "logits_to_keep" in takes
        self.options = {"logits_to_keep": 1} if keep else {}
        self.all_logits = all_logits
        self.cache_input = cache_input(model)
        self.in_order = any(hasattr(layer, "begin") for layer in cache.layers)
        # Bamba's own start at 0 in each call.
        self.gives_positions = self.in_order and "position_ids" in takes
        for index, layer in enumerate(cache.layers):
            for name, state in states_of(layer):
                self.register_buffer(f"{name}_{index}", state, persistent=False)

    def forward(self, input_ids: torch.Tensor, cache_position: torch.Tensor) -> torch.Tensor:
        start, count = cache_position[0], input_ids.shape[1]
        rows = torch.arange(count, device=start.device) + start
        in_window, positions = rows, None
        if self.window is not None:
            in_window, positions = self.window(start, count)
        for layer in self.cache.layers:
            layer.cumulative_length = start
            layer.rows = in_window if getattr(layer, "is_sliding", False) else rows
            layer.positions = positions
            if hasattr(layer, "begin"):
                layer.begin(start)
        inputs = {self.first: input_ids, self.cache_input: self.cache, "use_cache": True}
        if self.gives_positions:
            inputs["position_ids"] = rows[None]
        logits: torch.Tensor = self.model(**inputs, **self.options).logits
        return logits if self.all_logits else logits[:, -1:]


def _check_configuration(model: nn.Module, config: Any, cache_length: int) -> None:  # noqa: ANN401
    name = type(model).__name__
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"{name} has an encoder; expected a decoder-only causal language model"
        )
    if getattr(config, "is_decoder", True) is False:
        raise UnsupportedModelError(
            f"{name} is an encoder (config.is_decoder is False); expected a decoder-only causal "
            "language model. torch.export and TensorRTPartitioner export encoders, without a cache"
        )
    text = config.get_text_config()
    attention = getattr(text, "_attn_implementation", None) or "sdpa"
    if attention not in _ATTENTION:
        raise UnsupportedModelError(
            f"{name} computes attention with {attention!r}, which torch.export cannot trace here; "
            "load the model with attn_implementation='sdpa'"
        )
    experts = getattr(text, "_experts_implementation", None)
    if experts not in (None, "batched_mm") and _has_experts(text) and _can_set_experts(model):
        raise UnsupportedModelError(
            f"{name} is a mixture of experts with the implementation {experts!r}, whose operators "
            "ExecuTorch does not know; call model.set_experts_implementation('batched_mm') first"
        )
    for buffer, frequencies in rotary_frequencies(model).items():
        if frequencies.dtype != torch.float32:
            _log.warning(
                "%s of %s is %s, which makes the angles of far positions inexact; "
                "from_pretrained(dtype=...) and export_llm(dtype=...) leave it in torch.float32",
                *(buffer, name, frequencies.dtype),
            )
            break
    positions = getattr(text, "max_position_embeddings", None)
    if positions is not None and cache_length > positions:
        if not hasattr(text, "rope_parameters"):
            raise OptionError(
                f"cache_length is {cache_length}, but {name} has {positions} position embeddings"
            )
        _log.warning(
            "cache_length is %d; %s was trained for %d positions", cache_length, name, positions
        )


def _has_experts(config: Any) -> bool:  # noqa: ANN401
    return any(getattr(config, name, None) for name in _EXPERTS)


def _can_set_experts(model: Any) -> bool:  # noqa: ANN401
    """Return whether the model has more than one implementation of its experts."""
    can_set = getattr(model, "_can_set_experts_implementation", None)
    return can_set is None or bool(can_set())
