"""Bags of embeddings: what torch gives, in engines of one partition."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim
from torch.nn import functional

from tests.support.lowering import blobs, lower
from tests.support.models import Function
from tests.support.programs.operator_networks import lower_and_compare
from tests.support.sampled import sampled
from trt_et.conversion.operators.member_sums import embedding_bag

MODES = {"sum": 0, "mean": 1, "max": 2}
G = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(9, 4, generator=G)
INDICES = torch.tensor([1, 2, 4, 5, 2, 8, 0])
OFFSETS = torch.tensor([0, 2, 2, 5])
ROWS = INDICES[:6].reshape(2, 3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("ends", [False, True])
def test_any_bags_are_as_torch_has_them(mode, padding, ends):
    def drawn(low: int, high: int, size: int) -> torch.Tensor:
        return torch.randint(low, high, (size,), generator=G)

    for _ in range(50):
        count = int(drawn(1, 9, 1))
        starts = drawn(0, count + 1, int(drawn(1, 6, 1))).sort()[0]
        starts[0] = 0
        if ends and mode == "max":
            starts = torch.cat([starts, torch.tensor([count])])
        elif ends:  # Torch sums to the last offset, and divides by all that are left.
            starts = torch.cat([starts, drawn(int(starts[-1]), count + 1, 1)])
        indices = drawn(0, 9, count)
        options = {"include_last_offset": ends, "padding_idx": padding}
        found, *_ = embedding_bag(WEIGHT, indices, starts, mode=MODES[mode], **options)
        expected = functional.embedding_bag(indices, WEIGHT, starts, mode=mode, **options)
        torch.testing.assert_close(found, expected)


LENGTHS = torch.tensor([2, 0])


def of_any_bags(weight, indices, lengths):
    # Such offsets as torch takes, whatever the numbers are.
    offsets = torch.cat([lengths.new_zeros(1), (lengths % 3).cumsum(0)])
    bags = (indices, weight, offsets)
    weights = weight[indices.clamp(0, 8), 0]
    return [
        *(functional.embedding_bag(*bags, mode=mode) for mode in MODES),
        functional.embedding_bag(*bags, mode="sum", per_sample_weights=weights),
    ]


def of_known_bags(weight):
    return functional.embedding_bag(
        INDICES, weight, OFFSETS, include_last_offset=True, padding_idx=2
    )


def of_rows(weight, rows):
    options = ({}, {"padding_idx": 2}, {"mode": "max"})
    return [functional.embedding_bag(rows, weight, **given) for given in options]


CASES = [(of_any_bags, INDICES, LENGTHS), (of_known_bags,), (of_rows, ROWS)]


@pytest.mark.parametrize("dtype", sampled([torch.float32, torch.float16], 2))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_the_network_equals_eager(case, dtype):
    function, *inputs = case
    program = torch.export.export(Function(function), (WEIGHT.to(dtype), *inputs))
    lower_and_compare(program)


@pytest.mark.parametrize(("builder", "grad"), [("reference", True), ("tensorrt_rtx", False)])
def test_a_module_of_bags_is_one_engine_for_any_number_of_rows(builder, grad):
    model = torch.nn.EmbeddingBag(9, 4, mode="mean").requires_grad_(grad)
    dynamic = ({0: Dim("rows", min=2, max=8)},)
    program = torch.export.export(model, (ROWS,), dynamic_shapes=dynamic)
    assert len(blobs(lower(program, builder=builder))) == 1
    lower_and_compare(program)
