"""Exports a model of text and images, or of text and sound, for ExecuTorch's runner."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

import torch
from executorch.exir import ExecutorchProgramManager
from torch import nn

from trt_et.engines import EngineBuilder, make_builder
from trt_et.errors import OptionError, UnsupportedModelError
from trt_et.llm import steps
from trt_et.llm.decoder import CheckedDecoder, make_decoder
from trt_et.llm.metadata import eos_ids_of, runner_metadata
from trt_et.llm.position_check import is_position_check
from trt_et.partitioner import TensorRTPartitioner

# The methods of ExecuTorch's runner, and the method of a transformers model for each.
_ENCODERS: Final = {"vision_encoder": "get_image_features", "audio_encoder": "get_audio_features"}
# ExecuTorch's runner makes images and sound of these types only.
_ENCODER_DTYPES: Final = (torch.float32, torch.bfloat16)
# Models with these inputs have attention, or positions, that depend on the places of images.
_PLACES: Final = ("token_type_ids", "mm_token_type_ids")
# The get_image_features of these models takes a list of images and leaves out those that are
# padding: their number depends on values, which torch.export cannot do.
_IMAGE_LISTS: Final = ("idefics3", "smolvlm")


def export_multimodal(
    model: nn.Module,
    *,
    cache_length: int,
    image: torch.Tensor | None = None,
    audio: torch.Tensor | None = None,
    max_prompt: int | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | None = None,
    builder: str | EngineBuilder = "auto",
    eos_ids: int | Sequence[int] | None = None,
    **options: Any,  # noqa: ANN401
) -> ExecutorchProgramManager:
    """Export a model of ``transformers`` for ExecuTorch's ``MultimodalRunner``.

    The program has the methods ``token_embedding`` (tokens [1, n] to embeddings), ``text_decoder``
    (embeddings and the position of the first one to the logits of the last one), and
    ``vision_encoder`` or ``audio_encoder`` (an image, or features of sound, to embeddings). The
    table of embeddings stays on the CPU; the others are engines.

    Args:
        model: A causal language model with ``get_image_features`` or ``get_audio_features``.
        cache_length: Positions that the KV cache holds: text, images, sound and answer together.
        image: An example image, of the shape of all images: [1, channels, height, width].
        audio: Example features, of the shape of all features: [1, bins, frames].
        max_prompt: Most embeddings of one call: a text, or an image. None: ``cache_length``.
        dtype: Convert the model to this type, in place, before export. None: do not convert it.
        device: The GPU to build for.
        builder: The option of ``trt_et.TensorRTPartitioner``.
        eos_ids: Tokens that end a text. None: the tokens of the model's configuration.
        options: Further options of ``trt_et.TensorRTPartitioner``, for the engines of all methods;
            ``optimization_profiles`` apply to the decoder, whose input is ``input_ids``.

    Raises:
        OptionError: An option has an impossible value.
        UnsupportedModelError: The model cannot be exported in this way.
        BuilderUnavailable: The builder's packages are not installed.
        PartitionError: An engine could not be built.
    """
    max_prompt = steps.check_lengths(cache_length, max_prompt, options)
    ends = eos_ids_of(model, eos_ids)
    name = type(model).__name__
    examples = {"vision_encoder": image, "audio_encoder": audio}
    inputs = {method: given for method, given in examples.items() if given is not None}
    if not inputs:
        raise OptionError("image and audio are None; expected an example of at least one")
    _check_model(model, inputs)
    made = make_builder(builder)
    profiles = options.pop("optimization_profiles", steps.default_profiles(made.name, max_prompt))
    options = {"builder": made, "device": device, **options}
    excluded = [*options.pop("excluded_ops", ()), is_position_check]
    # Checks the options before the export of a large model, which takes minutes.
    partitioners = {
        method: [TensorRTPartitioner(**options, excluded_ops=excluded)] for method in inputs
    }
    partitioners["text_decoder"] = [
        TensorRTPartitioner(**options, excluded_ops=excluded, optimization_profiles=profiles)
    ]
    partitioners["token_embedding"] = []
    with steps.as_exported(model, dtype):
        programs = {
            method: steps.export_method(
                _Encoder(model, method),
                (example,),
                f"{_ENCODERS[method]} of {name} for the shape {list(example.shape)}",
                strict=False,
            )
            for method, example in inputs.items()
        }
        table: Any = model.get_input_embeddings()  # type: ignore[operator]
        tokens = steps.example_tokens(max_prompt)
        programs["token_embedding"] = torch.export.export(
            table, (tokens,), dynamic_shapes=(steps.token_sizes(max_prompt),)
        )
        decoder = make_decoder(model, cache_length, max_prompt, takes_embeddings=True)
        if not options.get("full_graph"):
            decoder = CheckedDecoder(decoder, cache_length)
        programs["text_decoder"], vocabulary = steps.export_decoder(
            decoder, name, table(tokens), max_prompt
        )
        metadata = runner_metadata(cache_length, max_prompt, ends, vocabulary)
        return steps.lower(programs, partitioners, metadata)


def _check_model(model: nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    name = type(model).__name__
    for method, example in inputs.items():
        if not hasattr(model, _ENCODERS[method]):
            raise UnsupportedModelError(
                f"{name} has no {_ENCODERS[method]}; expected a transformers model with it"
            )
        if example.dtype not in _ENCODER_DTYPES:
            raise OptionError(
                f"the example of {method} is {example.dtype}; ExecuTorch's runner passes "
                "torch.float32 or torch.bfloat16"
            )
    takes = inspect.signature(model.forward).parameters
    places = [place for place in _PLACES if place in takes]
    if places:
        raise UnsupportedModelError(
            f"{name}.forward takes {places[0]}: its attention or its positions depend on the place "
            "of the images, which ExecuTorch's runner does not tell the decoder"
        )


class _Encoder(nn.Module):
    """Embeddings [1, n, width] of an image, or of sound."""

    def __init__(self, model: nn.Module, method: str) -> None:
        super().__init__()
        self.model: Any = model
        self.method = _ENCODERS[method]

    def forward(self, example: torch.Tensor) -> torch.Tensor:
        example = example.to(next(self.model.parameters()).dtype)
        config = getattr(self.model, "config", None)
        if getattr(config, "model_type", None) in _IMAGE_LISTS:
            parts = self.model.model
            features = parts.connector(parts.vision_model(example).last_hidden_state)
        else:
            features = getattr(self.model, self.method)(example)
        if not isinstance(features, torch.Tensor | list | tuple):
            features = features.pooler_output
        if not isinstance(features, torch.Tensor):
            features = torch.cat(list(features))
        embeddings: torch.Tensor = features.reshape(1, -1, features.shape[-1])
        return embeddings
