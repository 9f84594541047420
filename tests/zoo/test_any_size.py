"""Models of the zoo at sizes that they were not exported with: batches, lengths, heights, widths.

Those of ``MENDED`` once lost a dynamic size, fell into many engines or could not be built. CI runs
some of them and builds the others; ``make zoo`` does both with all that export so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from tests.support.sampled import chosen
from tests.support.zoo.case import Case
from tests.support.zoo.lowered import MODELS, check_built, check_run, make

BATCH, LENGTH = Dim("batch", max=8), Dim("length", min=2, max=16)
# What halves a size five times wants multiples.
HEIGHT, WIDTH = 32 * Dim("height", min=2, max=4), 32 * Dim("width", min=2, max=4)

Sizes = dict[int, Any]


def of_batches(tensor: torch.Tensor) -> Sizes:
    return {0: BATCH}


def of_texts(tensor: torch.Tensor) -> Sizes:
    is_tokens = tensor.dim() == 2 and not tensor.is_floating_point()
    return {0: BATCH, 1: LENGTH} if is_tokens else {0: BATCH}


def of_images(tensor: torch.Tensor) -> Sizes:
    return {0: BATCH, 2: HEIGHT, 3: WIDTH}


# Exported with; then called with: batch, length, height, width.
EXPORTED, CALLS = (3, 9, 3, 2), ((1, 2, 2, 2), (8, 16, 4, 3))

MENDED = {
    "gpt2": of_texts,
    "roberta": of_texts,
    "whisper": of_texts,
    "deberta": of_texts,
    "gru": of_batches,
    "rope_half": of_batches,
    "resnet_hf": of_images,
    "deeplab": of_images,
    "segformer": of_images,
}
# tests/passes/test_split_to_slices.py has a smaller gru.
BUILT_IN_CI = ("rope_half",)
# The batch is the number of something else, is part of a cache, or does not go together.
NOT = ("llama_past", "llama_static_cache", "lstm_cell", "recommender", "gcn")
OF_ONE_LENGTH = ("mamba", "masked_transformer")
NAMES = [name for name in MODELS if name not in NOT]
IMAGES = ("convnext", "efficientnet_like", "fpn", "mobilenet_v3_like", "super_resolution", "unet")


def rule_of(name: str) -> Callable[[torch.Tensor], Sizes]:
    if name in MENDED:
        return MENDED[name]
    if name in IMAGES:
        return of_images
    return of_texts if _takes_tokens(name) else of_batches


def _takes_tokens(name: str) -> bool:
    return name not in OF_ONE_LENGTH and any(
        len(of_texts(tensor)) == 2 for tensor in pytree.tree_leaves(make(name).inputs)
    )


def resized(inputs: Any, rule: Callable[[torch.Tensor], Sizes], sizes: tuple[int, ...]) -> Any:
    """The inputs, repeated or cut to other sizes."""
    numbers = dict(zip((BATCH, LENGTH, HEIGHT, WIDTH), sizes, strict=True))

    def resize(tensor: torch.Tensor) -> torch.Tensor:
        for dim, size in rule(tensor).items():
            number = numbers[size] * (32 if rule is of_images and dim > 1 else 1)
            times = -(-number // tensor.shape[dim])
            tensor = torch.cat([tensor] * times, dim).narrow(dim, 0, number)
        return tensor.clone()

    return pytree.tree_map(resize, inputs)


def any_size(name: str) -> Case:
    rule = rule_of(name)
    case = make(name)
    dynamic = pytree.tree_map(rule, case.inputs)
    parameters = inspect.signature(case.model.forward).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        dynamic = (dynamic,)
    calls = tuple(resized(case.inputs, rule, sizes) for sizes in CALLS)
    inputs = resized(case.inputs, rule, EXPORTED)
    return replace(
        case,
        inputs=inputs,
        dynamic=dynamic,
        calls=calls,
        partitions=1,
        atol=max(case.atol, 1e-3),
    )


@pytest.mark.parametrize("name", chosen(NAMES))
def test_it_runs_like_eager_at_any_size(name):
    check_run(any_size(name))


@pytest.mark.parametrize("name", chosen(NAMES, *BUILT_IN_CI))
def test_tensorrt_rtx_builds_it_for_any_size(name):
    check_built(any_size(name))
