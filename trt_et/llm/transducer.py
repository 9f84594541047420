"""Exports a transducer for ExecuTorch's ``TransducerRunner`` and its example of Parakeet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from executorch.exir import ExecutorchProgramManager
from torch import nn
from torch.export import Dim

from trt_et.engines import EngineBuilder, make_builder
from trt_et.errors import OptionError, UnsupportedModelError
from trt_et.llm import steps
from trt_et.partitioner import TensorRTPartitioner

# A model of transformers needs these modules: for its three methods, and their projections.
_PARTS: Final = ("encoder", "encoder_projector", "decoder", "joint", "get_audio_features")
# torch.export needs more than one step, and an example of another number than the smallest.
_FEWEST_STEPS: Final = 2
# RNN-T: a token stays on its frame, and a blank goes on to the next one.
_WITHOUT_DURATIONS: Final = (0, 1)


def export_transducer(
    model: nn.Module,
    *,
    frames: int,
    sample_rate: int = 16000,
    window_stride: float = 0.01,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | None = None,
    builder: str | EngineBuilder = "auto",
    **options: Any,  # noqa: ANN401
) -> ExecutorchProgramManager:
    """Export a Parakeet transducer of ``transformers`` as three methods, each an engine.

    ``encoder`` takes features [1, bins, frames] and the number [1] of frames that are no padding,
    and returns a row for each step, [1, steps, width], and the number [1] of steps.
    ``decoder_step`` takes a token [1, 1] and the state of the LSTM, two tensors [layers, 1, width],
    and returns a row [1, 1, width] and the new state. ``joint`` takes a row of each, and returns
    the most likely token [1] and the index [1] of its duration.

    The program also has the constant methods that the runners read, and ``durations``: how many
    steps a token lasts, by the index that ``joint`` returns.

    Args:
        model: A ``ParakeetForTDT`` or ``ParakeetForRNNT``. The durations of the latter are 1 step
            for a blank, and 0 for every other token.
        frames: The most frames of a recording, a multiple of the encoder's subsampling factor. The
            encoder takes every such multiple: pad a recording with zeros to the next one.
        sample_rate: Samples of a second, which the runner reads.
        window_stride: Seconds from one frame to the next, which the runner reads.
        dtype: Convert the model to this type, in place, before export. None: do not convert it.
        device: The GPU to build for.
        builder: The option of ``trt_et.TensorRTPartitioner``.
        options: Further options of ``trt_et.TensorRTPartitioner``, for all methods.

    Raises:
        OptionError: An option has an impossible value.
        UnsupportedModelError: The model is of another kind, or ``torch.export`` cannot export it.
        BuilderUnavailable: The builder's packages are not installed.
        PartitionError: An engine could not be built.
    """
    config: Any = getattr(model, "config", None)
    if not all(hasattr(model, part) for part in _PARTS) or not hasattr(config, "blank_token_id"):
        raise UnsupportedModelError(
            f"{type(model).__name__} is no transducer of transformers; expected a ParakeetForTDT "
            "or a ParakeetForRNNT (export_speech exports Whisper)"
        )
    factor = config.encoder_config.subsampling_factor
    longest = factor * config.encoder_config.max_position_embeddings
    fewest = _FEWEST_STEPS * factor
    if type(frames) is not int or frames % factor or not fewest < frames <= longest:
        raise OptionError(
            f"frames is {frames!r}; expected a multiple of {factor} from {fewest + factor} to "
            f"{longest}"
        )
    layers, width = config.num_decoder_layers, config.decoder_hidden_size
    metadata = {
        "num_rnn_layers": layers,
        "pred_hidden": width,
        "joint_hidden": width,
        "vocab_size": config.vocab_size - 1,
        "blank_id": config.blank_token_id,
        "sample_rate": sample_rate,
        "window_stride": window_stride,
        "encoder_subsampling_factor": factor,
        "durations": list(getattr(config, "durations", _WITHOUT_DURATIONS)),
    }
    made = make_builder(builder)
    # Checks the options before the export of a large model, which takes minutes.
    partitioners = {
        method: [TensorRTPartitioner(builder=made, device=device, **options)]
        for method in ("encoder", "decoder_step", "joint")
    }
    count = Dim("steps", min=_FEWEST_STEPS, max=frames // factor)
    with steps.as_exported(model, dtype), _relative_positions_by_index(model):
        kind = next(model.parameters()).dtype
        features = torch.zeros(1, config.encoder_config.num_mel_bins, frames, dtype=kind)
        # Different tensors: torch.export takes one tensor given twice for one input.
        row, other_row = (torch.zeros(1, 1, width, dtype=kind) for _ in range(2))
        hidden, cell = (torch.zeros(layers, 1, width, dtype=kind) for _ in range(2))
        modules: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
            "encoder": (_Encoder(model), (features, torch.tensor([frames]))),
            "decoder_step": (_DecoderStep(model), (torch.tensor([[0]]), hidden, cell)),
            "joint": (_Joint(model), (row, other_row)),
        }
        sizes = {"encoder": ({2: factor * count}, None)}
        programs = {
            method: steps.export_method(
                module,
                inputs,
                f"{method} of {type(model).__name__}",
                dynamic_shapes=sizes.get(method),
            )
            for method, (module, inputs) in modules.items()
        }
        return steps.lower(programs, partitioners, metadata)


@contextmanager
def _relative_positions_by_index(model: nn.Module) -> Iterator[None]:
    """Let attention look up relative positions by index.

    The method of ``transformers`` reshapes the scores instead. torch knows neither an upper bound
    nor the divisors of the sizes that this has for a dynamic number of steps.
    """
    attentions: list[Any] = [m for m in model.modules() if hasattr(m, "_rel_shift")]
    for attention in attentions:
        attention._rel_shift = _look_up_relative_positions
    try:
        yield
    finally:
        for attention in attentions:
            del attention._rel_shift


def _look_up_relative_positions(scores: torch.Tensor) -> torch.Tensor:
    """Return the scores [batch, heads, queries, keys] of [batch, heads, queries, distances].

    The first distance is from the first key to the last query.
    """
    batch, heads, queries, _ = scores.shape
    steps = torch.arange(queries, device=scores.device)
    distances = steps[None] - steps[:, None] + (queries - 1)
    return scores.gather(-1, distances.expand(batch, heads, queries, queries))


class _Encoder(nn.Module):
    def __init__(self, model: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.model = model

    def forward(
        self, audio_signal: torch.Tensor, length: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        mask = torch.arange(audio_signal.shape[2], device=length.device)[None] < length[:, None]
        result = self.model.get_audio_features(audio_signal.transpose(1, 2), attention_mask=mask)
        return result.pooler_output, result.attention_mask.long().sum(-1)


class _DecoderStep(nn.Module):
    def __init__(self, model: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.decoder = model.decoder

    def forward(
        self, token: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        row, (hidden, cell) = self.decoder.lstm(self.decoder.embedding(token), (hidden, cell))
        return self.decoder.decoder_projector(row), hidden, cell


class _Joint(nn.Module):
    def __init__(self, model: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.joint = model.joint
        self.tokens: int = model.config.vocab_size
        self.blank: int = model.config.blank_token_id
        self.has_durations = hasattr(model.config, "durations")

    def forward(
        self, encoded: torch.Tensor, predicted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.joint(encoder_hidden_states=encoded, decoder_hidden_states=predicted)[:, 0]
        token = logits[:, : self.tokens].argmax(-1)
        if self.has_durations:
            return token, logits[:, self.tokens :].argmax(-1)
        return token, (token == self.blank).long()
