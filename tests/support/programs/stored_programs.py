"""Programs on disk, run by the stock runtime in a process of its own or by executor_runner."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import torch

import trt_et.runtime
from tests.support.lowering import lower_case
from tests.support.models import make
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


def as_tuple(outputs) -> tuple[torch.Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def write_case(folder: Path, name: str, **options) -> None:
    _, inputs = make(name)
    (folder / f"{name}.pte").write_bytes(lower_case(name, **options))
    torch.save(list(inputs), folder / f"{name}.inputs")


def run_stock(folder: Path, mode: str, *names: str) -> None:
    done = run_forked(STOCK, mode, *names, cwd=folder)
    assert done.returncode == 0, done.stderr


def assert_agrees(found, name: str) -> None:
    model, inputs = make(name)
    expected = as_tuple(model(*inputs))
    assert len(found) == len(expected)
    for have, want in zip(found, expected, strict=True):
        assert have.shape == want.shape
        assert have.dtype == want.dtype
        torch.testing.assert_close(have, want, atol=1e-4, rtol=1e-4)


def run_runner(folder: Path, name: str, mode: str) -> list[torch.Tensor]:
    """The outputs that executor_runner writes, shaped like eager's."""
    model, inputs = make(name)
    files = []
    for index, tensor in enumerate(inputs):
        path = folder / f"{name}-in{index}.bin"
        # The bytes as they lie in memory: channels_last is the program's own layout.
        flat = torch.as_strided(tensor, (tensor.numel(),), (1,)) if tensor.dim() else tensor
        path.write_bytes(flat.contiguous().numpy().tobytes())
        files.append(str(path))
    done = subprocess.run(
        [
            trt_et.runtime.runner_path(),
            f"--model_path={folder / name}.pte",
            f"--inputs={','.join(files)}",
            f"--output_file={folder / name}-out",
            "--num_executions=3",
        ],
        env={**os.environ, "TRT_ET_CUDA": mode},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    outputs = []
    for index, want in enumerate(as_tuple(model(*inputs))):
        raw = bytearray((folder / f"{name}-out-{index}.bin").read_bytes())
        flat = torch.frombuffer(raw, dtype=want.dtype)
        outputs.append(torch.as_strided(flat, want.shape, want.stride()))
    return outputs
