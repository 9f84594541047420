"""Each row of docs/troubleshooting/torch-export.md: what fails, its text, and the cure."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, export

from tests.support.lowering import lower

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting" / "torch-export.md"

BATCH = Dim("batch", max=8)
X = torch.ones(2, 4)
PAIR = {"a": X, "b": X}


class Calls(nn.Module):
    """A model whose ``forward`` is a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, *others: Any) -> Any:
        return self.function(x, *others)


class TakesBatch(nn.Module):
    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return batch["a"] + batch["b"]


class Adds(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def doubles_large(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] > 4 else x + 1


def density(check: bool) -> Calls:
    normal = torch.distributions.Normal
    return Calls(lambda x: normal(x, x.exp(), validate_args=check).log_prob(x))


def dynamic(model: nn.Module, x: torch.Tensor = X, size: Any = BATCH) -> Any:
    return export(model, (x,), dynamic_shapes=({0: size},))


def added(first: Any, second: Any) -> Any:
    return export(Adds(), (X, X.clone()), dynamic_shapes=({0: first}, {0: second}))


LINEAR = nn.Linear(4, 2)
HALF, HALF_CONV = nn.Linear(4, 2).half(), nn.Conv2d(3, 2, 3).half()
IMAGE = torch.ones(1, 3, 8, 8)

# The text, the call that fails, and the cure.
ROWS: dict[str, tuple[str, Callable[[], Any], Callable[[], Any]]] = {
    "a batch of 1": (
        "You marked batch as dynamic but your code specialized it to be a constant (1)",
        lambda: dynamic(LINEAR, X[:1]),
        lambda: dynamic(LINEAR),
    ),
    "a number for a size": (
        "You marked batch as dynamic but your code specialized it to be a constant (2)",
        lambda: dynamic(Calls(lambda x: x.reshape(2, -1))),
        lambda: dynamic(Calls(lambda x: x.reshape(x.shape[0], -1))),
    ),
    "a branch on a size": (
        "satisfy the generated guard",
        lambda: dynamic(Calls(doubles_large)),
        lambda: dynamic(Calls(doubles_large), size=Dim("batch", max=4)),
    ),
    "an even size": (
        "satisfy the generated guard (4*",
        lambda: dynamic(Calls(lambda x: x.reshape(x.shape[0] // 2, 2, 4)), torch.ones(4, 4)),
        lambda: dynamic(
            Calls(lambda x: x.reshape(x.shape[0] // 2, 2, 4)),
            torch.ones(4, 4),
            2 * Dim("half", max=4),
        ),
    ),
    "one size of two inputs": (
        "must always be equal",
        lambda: added(Dim("a"), Dim("c")),
        lambda: added(BATCH, BATCH),
    ),
    "the structure of dynamic shapes": (
        "Detected mismatch between the structure of `inputs` and `dynamic_shapes`",
        lambda: export(TakesBatch(), (PAIR,), dynamic_shapes=({0: BATCH},)),
        lambda: export(TakesBatch(), (PAIR,), dynamic_shapes=({"a": {0: BATCH}, "b": {0: BATCH}},)),
    ),
    "a tensor for a tuple": (
        "Expecting `args` to be a tuple of example positional inputs, got <class 'torch.Tensor'>",
        lambda: export(LINEAR, X),
        lambda: export(LINEAR, (X,)),
    ),
    "a dict for a tuple": (
        "Expecting `args` to be a tuple of example positional inputs, got <class 'dict'>",
        lambda: export(TakesBatch(), PAIR),
        lambda: export(TakesBatch(), (PAIR,)),
    ),
    "a dict for arguments": (
        "missing a required argument: 'batch'",
        lambda: export(TakesBatch(), (), kwargs=PAIR),
        lambda: export(TakesBatch(), (PAIR,)),
    ),
    "a half-precision convolution": (
        "Input type (float) and bias type (c10::Half) should be the same",
        lambda: export(HALF_CONV, (IMAGE,)),
        lambda: lower(export(HALF_CONV, (IMAGE.half(),))),
    ),
    "a half-precision linear layer": (
        "These operators are taking Tensor inputs with mismatched dtypes",
        lambda: lower(export(HALF, (X,))),
        lambda: lower(export(nn.Linear(4, 2), (X,)), precision="float16"),
    ),
    "a branch on values": (
        "Could not guard on data-dependent expression Eq(u0, 1)",
        lambda: export(Calls(lambda x: x * 2 if x.sum() > 0 else x + 1), (X,)),
        lambda: export(Calls(lambda x: torch.where(x.sum() > 0, x * 2, x + 1)), (X,)),
    ),
    "the checks of a distribution": (
        "Could not guard on data-dependent expression Eq(u0, 1)",
        lambda: export(density(True), (X,)),
        lambda: lower(export(density(False), (X,))),
    ),
    "a number from a tensor": (
        "Could not extract specialized integer from data-dependent expression u0",
        lambda: export(Calls(lambda x, n: x[:, : int(n.item())]), (X, torch.tensor(2))),
        lambda: lower(
            export(
                Calls(lambda x, n: torch.where(torch.arange(x.shape[1]) < n, x, 0)),
                (X, torch.tensor(2)),
            )
        ),
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_call_fails_with_the_text_of_the_page_and_its_cure_does_not(row):
    text, fail, cure = ROWS[row]
    with pytest.raises(Exception, match=re.escape(text)):
        fail()
    assert text in PAGE.read_text()
    assert cure() is not None


def test_auto_specializes_silently():
    program = dynamic(Calls(lambda x: x.reshape(2, -1)), size=Dim.AUTO)
    assert not program.range_constraints
    (placeholder,) = (node for node in program.graph.nodes if node.op == "placeholder")
    assert placeholder.meta["val"].shape == (2, 4)
