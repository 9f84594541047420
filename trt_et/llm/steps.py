"""The steps that the exports share: checks of options, ``torch.export``, and lowering."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

import torch
from executorch.exir import (
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    to_edge_transform_and_lower,
)
from torch import nn
from torch.export import Dim, ExportedProgram

from trt_et.engine_program.optimization_profiles import ProfileOption
from trt_et.errors import OptionError, UnknownOption, UnsupportedModelError
from trt_et.llm.decoder import INPUTS, rotary_frequencies
from trt_et.llm.position_check import mark_position_check
from trt_et.llm.sampling import SamplingDecoder
from trt_et.llm.scans import replaced, scans
from trt_et.memory.planning import TensorRTMemoryPlanningPass
from trt_et.mends.complex_numbers import is_complex, use_real_numbers
from trt_et.partitioner import TensorRTPartitioner

_EXAMPLE_TOKENS: Final = 8
# What transformers, optimum and ExecuTorch call cache_length.
_OTHER_NAMES: Final = ("max_cache_len", "max_context_len", "max_length", "max_seq_len")
# Of an error of torch.export, which can have hundreds.
_MOST_LINES: Final = 10
_CAUSE: Final = re.compile(r"^ *Developer debug context: .+$", re.MULTILINE)
# TensorRT tunes kernels when it builds, for one size a profile, so prompts and steps get one each.
# TensorRT-RTX compiles kernels at run time for the actual sizes, and stores weights once per
# profile if their layouts differ (1.58 times the weights with two), so it gets one.
_SEPARATE_STEPS: Final = frozenset({"tensorrt"})


def check_lengths(cache_length: int, max_prompt: int | None, options: Collection[str] = ()) -> int:
    """Return the most tokens of one call.

    Args:
        cache_length: Positions of the KV cache.
        max_prompt: The option.
        options: Names of options for the partitioner.

    Raises:
        OptionError: A length is impossible, or has another library's name.
    """
    for name in _OTHER_NAMES:
        if name in options:
            raise UnknownOption(f"{name!r} is no option: did you mean cache_length?")
    for name, value in (("cache_length", cache_length), ("max_prompt", max_prompt)):
        if value is not None and (type(value) is not int or value < 1):
            raise OptionError(f"{name} is {value!r}; expected an integer >= 1")
    if max_prompt is None:
        return cache_length
    if max_prompt > cache_length:
        raise OptionError(f"max_prompt is {max_prompt}, but the cache holds {cache_length} tokens")
    return max_prompt


def default_profiles(builder: str, max_prompt: int) -> tuple[ProfileOption, ...]:
    """Return the profiles for prompts of 1 to ``max_prompt`` tokens and for steps of one token."""
    tokens = INPUTS[0]
    if max_prompt == 1:
        return ()
    if builder in _SEPARATE_STEPS:
        best = min(max_prompt, max(2, max_prompt // 2))
        return ({tokens: {1: 1}}, {tokens: {1: (2, best, max_prompt)}})
    return ({tokens: {1: (1, 1, max_prompt)}},)


@contextmanager
def as_exported(model: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """Convert the model, and put it in evaluation mode without gradients.

    Raises:
        OptionError: The model is no module or has no values, or ``dtype`` is no floating point
            type.
    """
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise OptionError(f"dtype is {dtype!r}; expected a floating point type or None")
    _check_module(model)
    training = model.training
    if dtype is not None:
        _convert(model, dtype)
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def _check_module(model: object) -> None:
    if not isinstance(model, nn.Module):
        kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise OptionError(
            f"model is {kind}; expected a module: AutoModelForCausalLM.from_pretrained(folder)"
        )
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if tensor.is_meta:
            raise OptionError(
                f"weight {name} has no values: the model is on the device meta, and an engine "
                "needs them. Load it with from_pretrained(folder), outside of torch.device('meta')"
            )


def _convert(model: nn.Module, dtype: torch.dtype) -> None:
    """Convert a model as ``from_pretrained(dtype=...)`` does: its rotary angles stay float32."""
    frequencies = rotary_frequencies(model)
    model.to(dtype)
    for name, buffer in frequencies.items():
        owner, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(owner), attribute, buffer)


def example_tokens(max_prompt: int) -> torch.Tensor:
    """Return tokens to export with."""
    return torch.zeros(1, min(max_prompt, _EXAMPLE_TOKENS), dtype=torch.long)


def token_sizes(max_prompt: int) -> dict[int, Dim] | None:
    """Return the dynamic dimension 1 of tokens; None if a call has one token only."""
    return {1: Dim("tokens", min=1, max=max_prompt)} if max_prompt > 1 else None


def export_method(
    module: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    name: str,
    **options: Any,  # noqa: ANN401
) -> ExportedProgram:
    """Call ``torch.export``.

    Args:
        module: The module.
        inputs: Its example inputs.
        name: The module's name in messages.
        options: Further options of ``torch.export.export``.

    Raises:
        UnsupportedModelError: ``torch.export`` cannot export it.
    """
    try:
        return torch.export.export(module, inputs, **options)
    except Exception as error:
        raise UnsupportedModelError(
            f"torch.export cannot export {name}: {_first_lines(error)}"
        ) from error


def _first_lines(error: Exception) -> str:
    """Return the first paragraph of an error of ``torch.export``, and the cause that it names.

    Without Dynamo's general hints, its links and the stack; the error itself has them.
    """
    text = str(error).strip()
    lines = [
        line
        for line in text.partition("\n\n")[0].splitlines()
        if not line.lstrip().startswith("Hint:")
    ]
    return "\n".join([*lines[:_MOST_LINES], *_CAUSE.findall(text)[:1]])


def export_decoder(
    decoder: nn.Module, name: str, tokens: torch.Tensor, max_prompt: int, *others: torch.Tensor
) -> tuple[ExportedProgram, int]:
    """Export a module that takes tokens, or their embeddings, and the position of the first one.

    Args:
        decoder: A module of ``trt_et.llm.decoder``.
        name: The model's name, for messages.
        tokens: An example of its first input, whose dimension 1 is the number of tokens.
        max_prompt: Most tokens of one call.
        others: Examples of further inputs.

    Returns:
        The program, whose check of positions is marked, and the width of a row of logits.

    Raises:
        UnsupportedModelError: ``torch.export`` cannot export it.
    """
    # Without strict, run_decompositions of torch 2.13 and 2.14 fails on transformers' models.
    with replaced(decoder, scans(max_prompt)):
        program = export_method(
            decoder,
            (tokens, torch.zeros(1, dtype=torch.long), *others),
            f"{name} with a static KV cache and a dynamic number of tokens",
            dynamic_shapes=(token_sizes(max_prompt), None, *(None for _ in others)),
            strict=True,
        )
    program = use_real_numbers(program)
    for node in program.graph.nodes:
        if is_complex(node):
            raise UnsupportedModelError(
                f"{name} computes with complex numbers ({node.target}), which ExecuTorch and "
                "TensorRT do not know"
            )
        if str(getattr(node.target, "namespace", "")) == "kvcache":
            raise UnsupportedModelError(
                f"{name} calls {node.target}, whose cache lies outside of the program; expected "
                "a KV cache in buffers of the model"
            )
    outputs = program.graph_signature.user_outputs
    if len(outputs) != 1:
        raise UnsupportedModelError(f"{name} returns {len(outputs)} values; expected logits alone")
    mark_position_check(program)
    results: Any = program.graph.output_node().args[0]
    samples = program.graph.find_nodes(op="call_function", target=torch.ops.aten.argmax.default)
    logits = samples[-1].args[0] if isinstance(decoder, SamplingDecoder) else results[-1]
    return program, logits.meta["val"].shape[-1]


def lower(
    programs: dict[str, ExportedProgram],
    partitioners: dict[str, list[TensorRTPartitioner]],
    metadata: Mapping[str, Any],
    **memory: Any,  # noqa: ANN401
) -> ExecutorchProgramManager:
    """Lower the methods of a program.

    Args:
        programs: The methods by name.
        partitioners: The partitioners of each method.
        metadata: The constant methods by name.
        memory: Options of ``ExecutorchBackendConfig``. Without any, ``TensorRTMemoryPlanningPass``
            plans the memory.
    """
    manager = to_edge_transform_and_lower(
        programs, partitioner=partitioners, constant_methods=dict(metadata)
    )
    options = {"memory_planning_pass": TensorRTMemoryPlanningPass(), **memory}
    return manager.to_executorch(ExecutorchBackendConfig(**options))
