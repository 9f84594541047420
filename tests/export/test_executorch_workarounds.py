"""What works around ExecuTorch and torch.export is still needed: without it, lowering is wrong.

When one of these fails, a release has mended it, and the workaround can go.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch.export import Dim

from tests.support.lowering import blobs, lower, reference
from tests.support.mended import is_installed
from tests.support.models import Function
from tests.support.sampled import sampled
from tests.support.simulated_gpus import check
from trt_et.engine_info import decode_blob
from trt_et.inspection import inspect_program
from trt_et.passes import before_partitioning

X = torch.randn(4, 4)


def export(function: Any, *inputs: torch.Tensor, **options: Any) -> torch.export.ExportedProgram:
    model = function if isinstance(function, nn.Module) else Function(function)
    with torch.no_grad():
        return torch.export.export(model, inputs, **options)


class Weight(nn.Module):
    """A weight, and a function of it and the input."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4), requires_grad=False)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, self.weight)


def first_rows(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    count = n.item()
    torch._check(count >= 1)
    torch._check(count <= x.shape[0])
    return (x[:count] * 2).relu() + (x * 3).tanh()[:count]


def beyond_core() -> None:
    lower(export(torch.hypot, X, X))


def any_batch() -> None:
    sizes = (({0: Dim("batch", max=8)},),)
    program = export(lambda x: x.chunk(2, -1)[0] * 2, torch.randn(3, 4), dynamic_shapes=sizes)
    (blob,) = blobs(lower(program))
    assert decode_blob(blob).info.inputs[0].shape[0] == -1


def constants_stay() -> None:
    program = export(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]), X)
    before = set(program.constants)
    lower(program)
    assert before
    assert set(program.constants) == before


class Checked(nn.Module):
    """A constant that is folded and a decomposed operator, beside a size that only data tell."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(16, 8)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        count = (ids != 0).sum(1).max().item()
        torch._check(count <= 16)
        y = (x + self.rows(torch.arange(16).unsqueeze(0)).expand_as(x)).relu().log1p()
        return y + count


def data_dependent_elsewhere(builder: str = "reference") -> None:
    ids = torch.randint(0, 3, (2, 16))
    lower(export(Checked(), torch.randn(2, 16, 8), ids), builder=builder)


def data_dependent_twice() -> None:
    """One program can be lowered any number of times, by any partitioner."""
    program = export(first_rows, torch.randn(8, 3), torch.tensor(3))
    partitioners = (reference(), XnnpackPartitioner(), reference())
    first, _, again = (lower(program, partitioner=partitioner) for partitioner in partitioners)
    assert first == again


def unused_rows_by_a_mask() -> None:
    model = nn.Linear(3, 2)

    def function(x, mask):
        y = model(x)
        _ = y[mask] * 2
        return y.relu()

    x = torch.randn(4, 3)
    check(lower(export(function, x, x[:, 0] > 0)), function, (x, x[:, 0] > 0))


def weight_in_two_lists() -> None:
    def function(x, w):
        return torch.cat([torch.cumsum(torch.cat([x, w]), 0), w])

    lower(export(Weight(function), X), excluded_ops=["aten.cumsum"])


def weight_beside_a_list() -> None:
    def function(x, w):
        return torch.cat([torch.cumsum(x @ w, 0), w]) * 2

    lower(export(Weight(function), X), excluded_ops=["aten.cumsum"])


def two_partitioners_in_a_branch() -> None:
    def branch(x):
        y, z = x.relu(), x.sin()
        return (y + z).tanh() * 2 + y, z.tanh() + 1

    def function(x):
        return torch.cond(x.sum() > 0, branch, lambda x: (x + 1, x - 1), (x,))

    partitioners = [reference(excluded_ops=[f"aten.{name}"]) for name in ("add", "tanh")]
    to_edge_transform_and_lower(export(function, X), partitioner=partitioners)


class Shifted(nn.Module):
    """One buffer gets the value of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("older", torch.zeros(4, 4))
        self.register_buffer("newer", torch.zeros(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.older * x
        self.older.copy_(self.newer)
        self.newer.copy_(x * 2)
        return y


def buffer_of_buffer() -> None:
    (method,) = inspect_program(lower(export(Shifted(), X)))
    assert method.operator_calls["aten::copy_"] == 2


def pairs_viewed_back() -> None:
    def function(x):
        pairs = (x @ x.mT).flatten().relu()
        return pairs.view(x.shape[0], x.shape[1], x.shape[1]) + 1

    x, sizes = torch.randn(2, 6, 4), {0: Dim("batch", max=4), 1: Dim("n", max=9)}
    pte = lower(export(function, x, dynamic_shapes=((sizes,),)))
    check(pte, function, (x,), (torch.randn(4, 9, 4),))


@dataclass
class Workaround:
    """What can be left out, and what then fails."""

    replaced: str  # A function by its module and name, or a pass (PASSES).
    by: Callable[..., Any] | None  # What does nothing in its stead.
    check: Callable[[], None]  # Fails without it.
    needed_with: str = "ExecuTorch 1.5"
    fixed_in: str | None = None  # The release of torch that no longer needs it.


WORKAROUNDS = (
    Workaround("decompose_to_core_aten", None, beyond_core),
    Workaround("replace_split_with_slice", None, any_batch),
    Workaround("copy_buffers_of_buffers", None, buffer_of_buffer),
    Workaround(
        "trt_et.partitioner.with_own_symbols",
        lambda program: program,
        constants_stay,
        "torch 2.13",
        fixed_in="2.14",
    ),
    Workaround(
        "trt_et.engines.workers.unchanged_by_tracing",
        lambda nodes: contextlib.nullcontext(),
        data_dependent_twice,
        "torch 2.13",
    ),
    Workaround(
        "trt_et.engines.workers.unchanged_by_tracing",
        lambda nodes: contextlib.nullcontext(),
        data_dependent_elsewhere,
        "torch 2.13",
    ),
    Workaround(
        "trt_et.engines.workers.unchanged_by_tracing",
        lambda nodes: contextlib.nullcontext(),
        functools.partial(data_dependent_elsewhere, "tensorrt_rtx"),
        "torch 2.13",
    ),
    Workaround(
        "trt_et.partition.grouping._in_lists_of_several_groups",
        lambda graph, constants, groups: [],
        weight_in_two_lists,
    ),
    Workaround(
        "trt_et.mends.use_exact_sizes",
        lambda program: None,
        pairs_viewed_back,
        "torch 2.14 and ExecuTorch 1.5",
    ),
    Workaround("erase_unused_checks", None, unused_rows_by_a_mask),
    Workaround("trt_et.partition.tags.clear_tags", lambda _: None, two_partitioners_in_a_branch),
    Workaround("trt_et.partition.tags._let_lists_keep_it", lambda node: None, weight_beside_a_list),
)


@pytest.mark.parametrize(
    "workaround", sampled(WORKAROUNDS, 3), ids=lambda w: w.replaced.rpartition(".")[2]
)
def test_a_workaround_is_still_needed(workaround, monkeypatch):
    workaround.check()
    if workaround.by is None:
        passes = before_partitioning.PASSES
        rest = tuple(each for each in passes if each.__name__ != workaround.replaced)
        assert len(rest) == len(passes) - 1
        monkeypatch.setattr(before_partitioning, "PASSES", rest)
    else:
        monkeypatch.setattr(workaround.replaced, workaround.by)
    if workaround.fixed_in is not None and is_installed("torch", workaround.fixed_in):
        workaround.check()
        return
    with pytest.raises(Exception, match=""):
        workaround.check()
