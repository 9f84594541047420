"""Programs in the stock runtime, each in a process of its own.

Importing ExecuTorch takes seconds, so one process of this module does it once for all tests that
use the same GPUs, loads the plugin, and forks for every program: what a test sees is a fresh
process, whose host memory begins at zero and whose crash is nobody else's.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.support.native_environment import ROOT


def run(
    folder: Path, pte: bytes, *calls: tuple[Any, ...], cuda: str = "simulated:2"
) -> list[list[torch.Tensor]]:
    """The outputs of successive calls of one loaded method, ``forward``.

    Args:
        folder: For the files in between.
        pte: The program.
        calls: The arguments of each call.
        cuda: The simulated GPUs.
    """
    (folder / "model.pte").write_bytes(pte)
    torch.save([pytree.tree_leaves(call) for call in calls], folder / "calls")
    server = _server(cuda)
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(str(folder)) + "\n")
    server.stdin.flush()
    status = server.stdout.readline().strip()
    log = folder / "log"
    assert status == "0", f"status {status}: " + (log.read_text()[-3000:] if log.exists() else "")
    results: list[list[torch.Tensor]] = torch.load(folder / "results")
    return results


def check(folder: Path, pte: bytes, model: nn.Module, *calls: tuple) -> None:
    """Run the calls and compare each with the model itself."""
    found = run(folder, pte, *calls)
    for outputs, call in zip(found, calls, strict=True):
        for have, want in zip(outputs, pytree.tree_leaves(model(*call)), strict=True):
            torch.testing.assert_close(have, want, atol=1e-4, rtol=1e-4)


@functools.cache
def _server(cuda: str) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.stock_process", cuda],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.wait)
    atexit.register(server.stdin.close)  # type: ignore[union-attr]
    return server


def _serve(cuda: str) -> None:
    import trt_et.runtime

    # What libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    trt_et.runtime.load(cuda=cuda)
    from executorch.runtime import Runtime

    Runtime.get()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _execute(Path(json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)


def _execute(folder: Path) -> None:
    """In the child: run the program and end the process."""
    import traceback

    from executorch.runtime import Runtime

    with (folder / "log").open("w") as log:
        os.dup2(log.fileno(), 2)
    try:
        method = Runtime.get().load_program(folder / "model.pte").load_method("forward")
        results = [
            [tensor.clone() for tensor in method.execute(call)]
            for call in torch.load(folder / "calls")
        ]
        torch.save(results, folder / "results")
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
