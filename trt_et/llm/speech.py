"""Exports Whisper for ExecuTorch's ``AsrRunner``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from executorch.exir import ExecutorchProgramManager
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
from torch import nn

from trt_et.engines import EngineBuilder, make_builder
from trt_et.errors import OptionError, UnsupportedModelError
from trt_et.llm import steps
from trt_et.llm.cache_layers import make_cache_layer
from trt_et.llm.cross_attention import CrossAttention, OutputOfEncoder, SharedBuffers
from trt_et.llm.metadata import eos_ids_of, runner_metadata
from trt_et.llm.position_check import PositionCheck, is_position_check, mark_position_check
from trt_et.memory.planning import TensorRTMemoryPlanningPass
from trt_et.partitioner import TensorRTPartitioner


def export_speech(
    model: nn.Module,
    *,
    cache_length: int | None = None,
    share_state: bool = True,
    sampler: bool = False,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | None = None,
    builder: str | EngineBuilder = "auto",
    eos_ids: int | Sequence[int] | None = None,
    **options: Any,  # noqa: ANN401
) -> ExecutorchProgramManager:
    """Export a Whisper model of ``transformers`` as two methods, or three.

    ``encoder`` takes features [1, bins, frames] and returns the hidden states. ``text_decoder``
    takes a token [1, 1], the encoder's output and the position [1] of the token, and returns its
    logits. ``sampler`` takes the logits and returns the most likely token.

    Args:
        model: A ``WhisperForConditionalGeneration``.
        cache_length: Tokens of a text. None: as many as the model has positions.
        share_state: The encoder leaves the keys and values that the decoder attends to in memory of
            the GPU, and the decoder reads them there, not the encoder's output. The methods must
            share memory: ``executorch.runtime`` does that, C++'s ``Module`` with
            ``share_memory_arenas=true``. False, for ``AsrRunner``, whose ``Module`` does not: each
            call of the decoder computes them from the encoder's output.
        sampler: Add the method ``sampler``, which needs ``share_state=False``. The logits stay in
            memory of the GPU, and so does the encoder's output, which then is the keys and values
            that the decoder attends to: they are computed once. The caller passes both on, and
            reads neither.
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
    steps.check_lengths(cache_length, 1, options)
    if cache_length > positions:
        raise OptionError(
            f"cache_length is {cache_length}, but the model has {positions} positions"
        )
    if sampler and share_state:
        raise OptionError(
            "sampler=True needs share_state=False: ExecuTorch plans the memory of methods that "
            "share state on the host"
        )
    ends = eos_ids_of(model, eos_ids)
    check = not options.get("full_graph")
    options["excluded_ops"] = [*options.get("excluded_ops", ()), is_position_check]
    made = make_builder(builder)
    # Checks the options before the export of a large model, which takes minutes.
    partitioners = {
        method: [TensorRTPartitioner(builder=made, device=device, **options)]
        for method in ("encoder", "text_decoder", "sampler")[: 3 if sampler else 2]
    }
    with steps.as_exported(model, dtype):
        kind = next(model.parameters()).dtype
        frames = 2 * config.max_source_positions
        features = torch.zeros(1, config.num_mel_bins, frames, dtype=kind)
        number = torch.zeros(1, dtype=torch.long)
        make_cross = (
            SharedBuffers if share_state else OutputOfEncoder if sampler else CrossAttention
        )
        cross = make_cross(model)
        decoder = _Decoder(model, cross, cache_length, check)
        inputs = (number[None], torch.zeros(cross.output_shape, dtype=kind), number)
        programs = {
            "encoder": torch.export.export(_Encoder(model, cross), (features,), strict=True),
            "text_decoder": torch.export.export(decoder, inputs, strict=True),
        }
        if sampler:
            logits = torch.zeros(1, 1, config.vocab_size, dtype=kind)
            programs["sampler"] = torch.export.export(_Sampler(), (logits,))
        mark_position_check(programs["text_decoder"])
        metadata = runner_metadata(cache_length, 1, ends, config.vocab_size)
        if not sampler:
            planning = TensorRTMemoryPlanningPass(share_mutable_buffers=share_state)
            return steps.lower(programs, partitioners, metadata, memory_planning_pass=planning)
        stays = PropagateDeviceConfig(skip_d2h_for_method_outputs=True)
        on_gpu = {"encoder": (), "text_decoder": ("encoder_output",), "sampler": ("logits",)}
        return steps.lower(
            *(programs, partitioners, metadata),
            memory_planning_pass={
                method: TensorRTMemoryPlanningPass(inputs_on_device=names)
                for method, names in on_gpu.items()
            },
            propagate_device_config={"encoder": stays, "text_decoder": stays},
        )


class _Encoder(nn.Module):
    def __init__(self, model: Any, cross: CrossAttention) -> None:  # noqa: ANN401
        super().__init__()
        self.model = model
        self.cross = cross

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.cross.encoder_output(self.model.model.encoder(features).last_hidden_state)


class _Sampler(nn.Module):
    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.argmax(-1)


class _Decoder(nn.Module):
    def __init__(
        self,
        model: Any,  # noqa: ANN401
        cross: CrossAttention,
        cache_length: int,
        check: bool,
    ) -> None:
        from transformers.cache_utils import EncoderDecoderCache, StaticCache

        super().__init__()
        config = model.config
        self.model = model
        self.check = PositionCheck(cache_length) if check else None
        self.cross = cross
        heads, width = config.decoder_attention_heads, config.d_model
        caches = []
        for length in (cache_length, 1):
            cache = StaticCache(config=config, max_cache_len=length)
            cache.layers = [make_cache_layer(length) for _ in range(config.decoder_layers)]
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
        rows = torch.arange(token.shape[1], device=position.device) + position[0]
        for layer in self.cache.self_attention_cache.layers:
            layer.cumulative_length, layer.rows = position[0], rows
        for index, layer in enumerate(self.cache.cross_attention_cache.layers):
            layer.keys, layer.values = self.cross.keys_and_values(index, encoder_output, position)
            self.cache.is_updated[index] = True
        hidden = self.model.model.decoder(
            input_ids=token,
            encoder_hidden_states=encoder_output,
            past_key_values=self.cache,
            use_cache=True,
        ).last_hidden_state
        logits: torch.Tensor = self.model.proj_out(hidden)
        return logits
