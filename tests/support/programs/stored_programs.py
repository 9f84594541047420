"""Programs on disk, run three times by the stock runtime in a separate process."""

from __future__ import annotations

from pathlib import Path

from tests.support.python_process import run_forked

STOCK = """
import sys, torch, trt_et.runtime
trt_et.runtime.load(cuda=sys.argv[1])
from executorch.runtime import Runtime
for case in sys.argv[2:]:
    program = Runtime.get().load_program(case + ".pte")
    method = program.load_method("forward")
    torch.save([method.execute(torch.load(case + ".inputs")) for _ in range(3)], case + ".outputs")
"""


def run_stock(folder: Path, mode: str, *names: str) -> None:
    done = run_forked(STOCK, mode, *names, cwd=folder)
    assert done.returncode == 0, done.stderr
