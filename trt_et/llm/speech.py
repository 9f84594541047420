"""Exports Whisper for ExecuTorch's ``AsrRunner``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from executorch.exir import (
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    to_edge_transform_and_lower,
)
from torch import nn

from trt_et.engines import EngineBuilder, make_builder
from trt_et.errors import OptionError, UnsupportedModelError
from trt_et.llm.decoder_program import as_exported, check_dtype, check_lengths
from trt_et.llm.metadata import eos_ids_of, runner_metadata
from trt_et.llm.position_check import PositionCheck, is_position_check, mark_position_check
from trt_et.memory.planning import TensorRTMemoryPlanningPass
from trt_et.partitioner import TensorRTPartitioner

__all__ = ["export_speech"]


def export_speech(
    model: nn.Module,
    *,
    cache_length: int | None = None,
    share_state: bool = True,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | None = None,
    builder: str | EngineBuilder = "auto",
    eos_ids: int | Sequence[int] | None = None,
    **options: Any,  # noqa: ANN401
) -> ExecutorchProgramManager:
    """Export a Whisper model of ``transformers`` as two methods.

    ``encoder`` takes features [1, bins, frames] and returns the hidden states. ``text_decoder``
    takes a token [1, 1], the encoder's output and the position [1] of the token, and returns its
    logits.

    Args:
        model: A ``WhisperForConditionalGeneration``.
        cache_length: Tokens of a text. None: as many as the model has positions.
        share_state: The encoder leaves the keys and values that the decoder attends to in memory of
            the GPU, and the decoder reads them there, not the encoder's output. The methods must
            share memory: ``executorch.runtime`` does that, C++'s ``Module`` with
            ``share_memory_arenas=true``. False, for ``AsrRunner``, whose ``Module`` does not: each
            call of the decoder computes them from the encoder's output.
        dtype: Convert the model to this type, in place, before export. None: do not convert it.
        device: The GPU to build for.
        builder: The option of ``trt_et.TensorRTPartitioner``.
        eos_ids: Tokens that end a text. None: the tokens of the model's configuration.
        options: Further options of ``trt_et.TensorRTPartitioner``, for both methods.

    Raises:
        OptionError: An option has an impossible value.
        UnsupportedModelError: The model is of another kind.
        BuilderUnavailable: The builder's packages are not installed.
        PartitionError: An engine could not be built.
    """
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", None) != "whisper" or not hasattr(model, "proj_out"):
        raise UnsupportedModelError(
            f"{type(model).__name__} is no WhisperForConditionalGeneration; export_llm exports "
            "decoders, and export_multimodal models with get_audio_features"
        )
    positions = config.max_target_positions
    cache_length = positions if cache_length is None else cache_length
    check_lengths(cache_length, 1)
    if cache_length > positions:
        raise OptionError(
            f"cache_length is {cache_length}, but the model has {positions} positions"
        )
    check_dtype(dtype)
    ends = eos_ids_of(model, eos_ids)
    made = make_builder(builder)
    with as_exported(model, dtype):
        kind = next(model.parameters()).dtype
        frames = 2 * config.max_source_positions
        features = torch.zeros(1, config.num_mel_bins, frames, dtype=kind)
        hidden = torch.zeros(1, config.max_source_positions, config.d_model, dtype=kind)
        number = torch.zeros(1, dtype=torch.long)
        check = not options.get("full_graph")
        decoder = _Decoder(model, cache_length, share_state, check)
        encoder = _Encoder(model, share_state)
        programs = {
            "encoder": torch.export.export(encoder, (features,), strict=True),
            "text_decoder": torch.export.export(
                decoder, (number[None], hidden, number), strict=True
            ),
        }
        mark_position_check(programs["text_decoder"])
        options["excluded_ops"] = [*options.get("excluded_ops", ()), is_position_check]
        partitioners = {
            method: [TensorRTPartitioner(builder=made, device=device, **options)]
            for method in programs
        }
        metadata = runner_metadata(cache_length, 1, ends, config.vocab_size)
        manager = to_edge_transform_and_lower(
            programs, partitioner=partitioners, constant_methods=metadata
        )
        planning = TensorRTMemoryPlanningPass(share_mutable_buffers=share_state)
        return manager.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))


class _CrossAttention(nn.Module):
    """Keys and values of the encoder's output, in buffers of one name in both methods.

    Both methods must write them, or they would be constants in the decoder. They have one row more
    than the output, which the decoder writes.
    """

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        super().__init__()
        config = model.config
        self.rows: int = config.max_source_positions
        heads = config.decoder_attention_heads
        shape = (1, heads, self.rows + 1, config.d_model // heads)
        self.layers: int = config.decoder_layers
        for index in range(self.layers):
            for name in ("keys", "values"):
                zeros = torch.zeros(shape, dtype=model.dtype, device=model.device)
                self.register_buffer(f"{name}_{index}", zeros, persistent=False)

    def write(self, name: str, index: int, rows: torch.Tensor) -> None:
        """Write the keys or the values of a layer."""
        getattr(self, f"{name}_{index}").index_copy_(2, torch.arange(self.rows), rows)

    def read(self, name: str, index: int, number: torch.Tensor) -> torch.Tensor:
        """Write a number to the additional row of a layer, and return the other rows.

        TensorRT-RTX builds no engine that writes constants in place.
        """
        cache: torch.Tensor = getattr(self, f"{name}_{index}")
        row = number.to(cache.dtype).expand(*cache.shape[:2], 1, cache.shape[3])
        cache.index_copy_(2, torch.tensor([self.rows]), row)
        return cache[:, :, : self.rows]


def _keys_and_values(attention: Any, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    shape = (1, -1, attention.num_heads, attention.head_dim)
    keys, values = attention.k_proj(hidden), attention.v_proj(hidden)
    return keys.view(shape).transpose(1, 2), values.view(shape).transpose(1, 2)


class _Encoder(nn.Module):
    def __init__(self, model: Any, share_state: bool) -> None:  # noqa: ANN401
        super().__init__()
        self.model = model
        self.cross = _CrossAttention(model) if share_state else None

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.model.model.encoder(features).last_hidden_state
        if self.cross is not None:
            for index, layer in enumerate(self.model.model.decoder.layers):
                keys, values = _keys_and_values(layer.encoder_attn, hidden)
                self.cross.write("keys", index, keys)
                self.cross.write("values", index, values)
        return hidden


class _Decoder(nn.Module):
    def __init__(
        self,
        model: Any,  # noqa: ANN401
        cache_length: int,
        share_state: bool,
        check: bool,
    ) -> None:
        from transformers.cache_utils import EncoderDecoderCache, StaticCache, StaticLayer

        super().__init__()
        config = model.config
        self.model = model
        self.check = PositionCheck(cache_length) if check else None
        self.cross = _CrossAttention(model) if share_state else None
        heads, width = config.decoder_attention_heads, config.d_model
        caches = []
        for length in (cache_length, 1):
            cache = StaticCache(config=config, max_cache_len=length)
            cache.layers = [StaticLayer(length) for _ in range(config.decoder_layers)]
            cache.early_initialization(1, heads, width // heads, model.dtype, model.device)
            caches.append(cache)
        self.cache = EncoderDecoderCache(*caches)
        for index, layer in enumerate(self.cache.self_attention_cache.layers):
            self.register_buffer(f"key_cache_{index}", layer.keys, persistent=False)
            self.register_buffer(f"value_cache_{index}", layer.values, persistent=False)

    def forward(
        self, token: torch.Tensor, encoder_output: torch.Tensor, position: torch.Tensor
    ) -> torch.Tensor:
        position = position if self.check is None else self.check(position, 1)
        for layer in self.cache.self_attention_cache.layers:
            layer.cumulative_length = position[0].clone()
        for index, layer in enumerate(self.cache.cross_attention_cache.layers):
            if self.cross is None:
                attention = self.model.model.decoder.layers[index].encoder_attn
                layer.keys, layer.values = _keys_and_values(attention, encoder_output)
            else:
                layer.keys = self.cross.read("keys", index, position)
                layer.values = self.cross.read("values", index, position)
            self.cache.is_updated[index] = True
        hidden = self.model.model.decoder(
            input_ids=token,
            encoder_hidden_states=encoder_output,
            past_key_values=self.cache,
            use_cache=True,
        ).last_hidden_state
        logits: torch.Tensor = self.model.proj_out(hidden)
        return logits
