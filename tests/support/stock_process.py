"""Programs in the stock runtime, each in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.support.python_process import run_forked

_RUN = """
import sys, torch, trt_et.runtime
from executorch.runtime import Runtime
trt_et.runtime.load(cuda=sys.argv[1])
method = Runtime.get().load_program("model.pte").load_method("forward")
results = [[tensor.clone() for tensor in method.execute(call)] for call in torch.load("calls")]
torch.save(results, "results")
"""


def run(
    folder: Path, pte: bytes, *calls: tuple[Any, ...], cuda: str = "simulated:2"
) -> list[list[torch.Tensor]]:
    """Return the outputs of successive calls of one loaded ``forward``; files go to ``folder``."""
    (folder / "model.pte").write_bytes(pte)
    torch.save([pytree.tree_leaves(call) for call in calls], folder / "calls")
    done = run_forked(_RUN, cuda, cwd=folder)
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr[-3000:]}"
    results: list[list[torch.Tensor]] = torch.load(folder / "results")
    return results


def check(folder: Path, pte: bytes, model: nn.Module, *calls: tuple) -> None:
    """Run the calls and compare each with the model itself."""
    found = run(folder, pte, *calls)
    for outputs, call in zip(found, calls, strict=True):
        for have, want in zip(outputs, pytree.tree_leaves(model(*call)), strict=True):
            torch.testing.assert_close(have, want, atol=1e-4, rtol=1e-4)
