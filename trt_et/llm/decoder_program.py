"""Exports the decoder of a language model with ``torch.export``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from trt_et.errors import OptionError, UnsupportedModelError
from trt_et.llm.decoder import rotary_frequencies

__all__ = ["as_exported", "check_dtype", "check_lengths", "example_tokens", "export_decoder"]

_EXAMPLE_TOKENS: Final = 8


def check_lengths(cache_length: int, max_prompt: int | None) -> int:
    """Return the most tokens of one call.

    Raises:
        OptionError: A length is impossible.
    """
    for name, value in (("cache_length", cache_length), ("max_prompt", max_prompt)):
        if value is not None and (type(value) is not int or value < 1):
            raise OptionError(f"{name} is {value!r}; expected an integer >= 1")
    if max_prompt is None:
        return cache_length
    if max_prompt > cache_length:
        raise OptionError(f"max_prompt is {max_prompt}, but the cache holds {cache_length} tokens")
    return max_prompt


def check_dtype(dtype: torch.dtype | None) -> None:
    """Check the type that a model is converted to.

    Raises:
        OptionError: It is no floating point type.
    """
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise OptionError(f"dtype is {dtype!r}; expected a floating point type or None")


def example_tokens(max_prompt: int) -> int:
    """Return the number of tokens to export with."""
    return min(max_prompt, _EXAMPLE_TOKENS)


@contextmanager
def as_exported(model: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """Convert the model, and put it in evaluation mode without gradients."""
    training = model.training
    if dtype is not None:
        _convert(model, dtype)
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def _convert(model: nn.Module, dtype: torch.dtype) -> None:
    """Convert a model as ``from_pretrained(dtype=...)`` does: its rotary angles stay float32."""
    frequencies = rotary_frequencies(model)
    model.to(dtype)
    for name, buffer in frequencies.items():
        owner, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(owner), attribute, buffer)


def export_decoder(
    decoder: nn.Module, name: str, tokens: torch.Tensor, max_prompt: int
) -> ExportedProgram:
    """Export a module that takes tokens, or their embeddings, and the position of the first one.

    Args:
        decoder: A module of ``trt_et.llm.decoder``.
        name: The model's name, for messages.
        tokens: An example of its first input, whose dimension 1 is the number of tokens.
        max_prompt: Most tokens of one call.

    Raises:
        UnsupportedModelError: ``torch.export`` cannot export it.
    """
    lengths = {1: Dim("tokens", min=1, max=max_prompt)} if max_prompt > 1 else None
    try:
        # Without strict, run_decompositions of torch 2.13 and 2.14 fails on transformers' models.
        program = torch.export.export(
            decoder,
            (tokens, torch.zeros(1, dtype=torch.long)),
            dynamic_shapes=(lengths, None),
            strict=True,
        )
    except Exception as error:
        raise UnsupportedModelError(
            f"torch.export cannot export {name} with a static KV cache and a dynamic number of "
            f"tokens: {error}"
        ) from error
    _check_graph(program, name)
    return program


def _check_graph(program: ExportedProgram, name: str) -> None:
    for node in program.graph.nodes:
        if str(getattr(node.target, "namespace", "")) == "kvcache":
            raise UnsupportedModelError(
                f"{name} calls {node.target}, whose cache lies outside of the program; expected "
                "a KV cache in buffers of the model"
            )
    outputs = program.graph_signature.user_outputs
    if len(outputs) != 1:
        raise UnsupportedModelError(f"{name} returns {len(outputs)} values; expected logits alone")
