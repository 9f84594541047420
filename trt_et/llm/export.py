"""Exports a language model to an ExecuTorch program in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from executorch.exir import ExecutorchProgramManager
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
from torch import nn
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from trt_et.engines import EngineBuilder, make_builder
from trt_et.errors import OptionError, UnsupportedModelError
from trt_et.llm import steps
from trt_et.llm.decoder import CheckedDecoder, make_decoder
from trt_et.llm.layers import LayerDevices
from trt_et.llm.metadata import eos_ids_of, runner_metadata
from trt_et.llm.position_check import is_position_check
from trt_et.llm.sampling import SAMPLING_INPUTS, SamplingDecoder
from trt_et.memory.planning import TensorRTMemoryPlanningPass
from trt_et.partitioner import DeviceChoice, TensorRTPartitioner


def export_llm(
    model: nn.Module,
    *,
    cache_length: int,
    max_prompt: int | None = None,
    dtype: torch.dtype | None = None,
    device: str | int | torch.device | Callable[[int], str | int | torch.device] | None = None,
    builder: str | EngineBuilder = "auto",
    cache_on_gpu: bool = True,
    io_on_gpu: bool = False,
    all_logits: bool = False,
    prefill_and_decode: bool = False,
    sampling: bool = False,
    eos_ids: int | Sequence[int] | None = None,
    **options: Any,  # noqa: ANN401
) -> ExecutorchProgramManager:
    """Export a causal language model for ExecuTorch's ``TextLLMRunner``.

    The program has one method, ``forward``. It takes ``input_ids`` [1, n] and ``cache_position``
    [1], the position of the first token, and returns the logits [1, 1, vocabulary] of the last one.

    Args:
        model: A ``transformers`` causal language model, or a module that takes the two inputs of
            the method and keeps its KV cache in buffers.
        cache_length: Positions that the KV cache holds: prompt and answer together.
        max_prompt: Most tokens of one call; the runner cuts longer prompts into pieces of that
            size. None: ``cache_length``. If it is less, layers with a sliding window get shorter
            caches, and a text that does not fit the cache ends in an error of the program, not of
            the runner.
        dtype: Convert the model to this type, in place, before export; its rotary angles stay
            float32, as with ``from_pretrained(dtype=...)``. None: do not convert it.
        device: The GPU to build for, like the option of ``trt_et.TensorRTPartitioner``; or a
            function that returns the GPU of a layer by its number. Each run of layers on one GPU
            then becomes an engine.
        builder: The option of ``trt_et.TensorRTPartitioner``.
        cache_on_gpu: Keep the KV cache in the memory of the engine's GPU. False: keep it on the
            host, and copy it to the GPU and back at each call.
        io_on_gpu: Take tokens and position from memory of the GPU, which the caller provides, and
            leave the logits in memory of the GPU, for C++ programs that sample there. ExecuTorch's
            runner does not.
        all_logits: Return the logits of all tokens of a call, [1, n, vocabulary].
        prefill_and_decode: Export two methods, ``prefill`` and ``decode``, in place of ``forward``.
            Both take what ``forward`` takes, and share the engine, its weights and the cache. The
            methods must share memory: ``executorch.runtime`` does that, C++'s ``Module`` with
            ``share_memory_arenas=true``.
        sampling: Take ``temperature`` [1] and ``random`` [1] too, two float32, and return the next
            token [1, 1] in place of logits: the most likely one at temperature 0, otherwise the one
            that ``random``, a number from 0 to less than 1, chooses by the tokens' probabilities.
            ExecuTorch's runner cannot run such a program.
        eos_ids: Tokens that end a text. None: the tokens of the model's configuration.
        options: Further options of ``trt_et.TensorRTPartitioner``. ``full_graph=True`` leaves out
            the check of positions, which runs on the CPU. ``optimization_profiles`` replaces the
            default, which depends on the builder; the input is ``input_ids``.

    Raises:
        OptionError: An option has an impossible value.
        UnsupportedModelError: The model cannot be exported in this way.
        BuilderUnavailable: The builder's packages are not installed.
        PartitionError: An engine could not be built.
    """
    max_prompt = steps.check_lengths(cache_length, max_prompt, options)
    ends = eos_ids_of(model, eos_ids)
    if io_on_gpu and not cache_on_gpu:
        raise OptionError("io_on_gpu=True needs cache_on_gpu=True")
    if prefill_and_decode and (io_on_gpu or not cache_on_gpu or callable(device)):
        raise OptionError(
            "prefill_and_decode=True cannot be combined with io_on_gpu=True, cache_on_gpu=False or "
            "a function as device: ExecuTorch plans the inputs of methods that share state on the "
            "host, and one engine keeps the cache"
        )
    if sampling and all_logits:
        raise OptionError(
            "sampling=True returns a token; it cannot be combined with all_logits=True"
        )
    made = make_builder(builder)
    options.setdefault("optimization_profiles", steps.default_profiles(made.name, max_prompt))
    # Checks the options; the export of a large model takes minutes.
    TensorRTPartitioner(builder=made, device=None if callable(device) else device, **options)
    with steps.as_exported(model, dtype):
        decoder = make_decoder(model, cache_length, max_prompt, all_logits=all_logits)
        if callable(device) and getattr(decoder, "in_order", False):
            raise OptionError(
                f"device is a function, but {type(model).__name__} keeps recurrent states, which "
                "one engine has; expected one GPU, such as device='cuda:0'"
            )
        # The check runs on the CPU, which cannot read the memory of the GPU.
        if not io_on_gpu and not options.get("full_graph"):
            decoder = CheckedDecoder(decoder, cache_length)
        name, tokens = type(model).__name__, steps.example_tokens(max_prompt)
        numbers = [torch.zeros(1) for _ in SAMPLING_INPUTS] if sampling else []
        decoder = SamplingDecoder(decoder) if sampling else decoder
        program, vocabulary = steps.export_decoder(decoder, name, tokens, max_prompt, *numbers)
        options["excluded_ops"] = [*options.get("excluded_ops", ()), is_position_check]
        engine_device: DeviceChoice | None
        if callable(device):
            layers = LayerDevices(program, device, name)
            options["excluded_ops"].append(layers.is_cut)
            engine_device = layers.device_of
        else:
            engine_device = device
        methods = ("prefill", "decode") if prefill_and_decode else ("forward",)
        # Equal programs become equal engines, which ExecuTorch stores once.
        programs = {method: deepcopy(program) for method in methods[1:]} | {methods[0]: program}
        partitioners = {
            method: [TensorRTPartitioner(builder=made, device=engine_device, **options)]
            for method in methods
        }
        metadata = runner_metadata(cache_length, max_prompt, ends, vocabulary)
        planning = (
            TensorRTMemoryPlanningPass(
                share_mutable_buffers=prefill_and_decode, inputs_on_device=io_on_gpu
            )
            if cache_on_gpu
            else MemoryPlanningPass()
        )
        outputs = PropagateDeviceConfig(skip_d2h_for_method_outputs=io_on_gpu)
        try:
            return steps.lower(
                *(programs, partitioners, metadata),
                memory_planning_pass=planning,
                propagate_device_config=outputs,
            )
        except GuardOnDataDependentSymNode as error:
            raise UnsupportedModelError(
                f"{name} has tensors whose sizes depend on values, such as the tokens of an "
                "expert; ExecuTorch cannot lower it"
            ) from error
