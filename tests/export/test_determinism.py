"""The same model gives the same bytes: in one process, in fresh ones, and whatever says cuda:0."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
import torch
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch import nn

from tests.support.lowering import export, lower, lower_case
from tests.support.native_environment import ROOT

BUILDERS = ["reference", "tensorrt_rtx"]


class SharedWeights(nn.Module):
    """Each of its weights is in both partitions: ExecuTorch copies them in the order of a set."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(4) * index for index in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = x * weight
        x = torch.cumsum(x, 0)
        for weight in self.weights:
            x = x + weight
        return x


@pytest.mark.long
def test_twice_in_one_process_is_byte_identical():
    """A larger model than that of the processes below."""
    program = export("vit")
    first, second = (lower(program, builder="tensorrt_rtx") for _ in range(2))
    assert first == second


def test_cuda_0_said_or_not_is_byte_identical():
    silent = lower_case("mlp")
    spec = CompileSpec("target_device", b"cuda:0")
    assert lower_case("mlp", device="cuda:0") == silent
    assert lower_case("mlp", compile_specs=[spec]) == silent


@pytest.mark.long
@pytest.mark.reliability("R12")
def test_processes_agree():
    """Forks of each of two processes with hash seeds of their own; make reliability has ten."""
    found = []
    forks = int(os.environ.get("TRT_ET_EXPORT_PROCESSES", "2")) // 2
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-m", "tests.export.test_determinism", str(forks)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        found += [line for line in run.stdout.splitlines() if line.startswith("digest ")]
    assert len(found) == 2 * forks
    assert len(set(found)) == 1


def print_from_forks(count: int) -> None:
    """Of engines of each builder, and of shared weights, from so many processes."""
    for _ in range(count):
        child = os.fork()
        if child == 0:
            programs = [lower_case("mlp", builder=builder) for builder in BUILDERS]
            shared = torch.export.export(SharedWeights(), (torch.ones(4),))
            programs.append(lower(shared, excluded_ops=[torch.ops.aten.cumsum]))
            os.write(1, f"\ndigest {hashlib.sha256(b''.join(programs)).hexdigest()}\n".encode())
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    print_from_forks(int(sys.argv[1]))
