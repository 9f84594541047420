"""Reference engines with dynamic shapes: sizes come as integers among the arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.lowering import export_with_batch, lower
from tests.support.models import make

BATCHES = (1, 8, 2, 5)


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dynamic") / "vit.pte"
    path.write_bytes(lower(export_with_batch("vit"), builder="reference"))
    return path


@pytest.fixture(scope="module")
def image() -> torch.Tensor:
    _, (x,) = make("vit")
    return torch.randn(9, *x.shape[1:], generator=torch.Generator().manual_seed(0))


def eager(x: torch.Tensor) -> torch.Tensor:
    model, _ = make("vit")
    with torch.no_grad():
        result = model(x)
    assert isinstance(result, torch.Tensor)
    return result


def test_every_batch_in_the_stock_runtime(
    vit: Path, image: torch.Tensor, stock: Callable[..., dict[str, Any]]
) -> None:
    jobs = [{"program": str(vit), "inputs": [image[:batch]]} for batch in (*BATCHES, 9, 3)]
    facts = stock(*jobs, TRT_ET_CUDA="simulated:1")
    *fine, too_large, after = facts["results"]
    for batch, result in zip((*BATCHES, 3), (*fine, after), strict=True):
        torch.testing.assert_close(result["outputs"][0], eager(image[:batch]), rtol=1e-4, atol=1e-5)
    assert "error" in too_large
    assert "Error resizing tensor at input 0" in facts["stderr"]
    assert not any(facts["end"]["live"])


def test_an_empty_batch_is_an_error_that_says_what_to_do(
    tmp_path: Path, stock: Callable[..., dict[str, Any]]
) -> None:
    batch = torch.export.Dim("batch", min=0, max=8)
    model, x = torch.nn.Linear(4, 2).eval(), torch.randn(3, 4)
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    path = tmp_path / "linear.pte"
    path.write_bytes(lower(exported, builder="reference"))
    jobs = [{"program": str(path), "inputs": [tensor]} for tensor in (x[:0], x)]
    facts = stock(*jobs, TRT_ET_CUDA="simulated:1")
    empty, after = facts["results"]
    assert "error" in empty
    assert "the sizes of an engine begin at 1" in facts["stderr"]
    with torch.no_grad():
        torch.testing.assert_close(after["outputs"][0], model(x))
