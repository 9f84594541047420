"""The same model gives the same bytes: in one process, in fresh ones, and whatever says cuda:0."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
from executorch.exir.backend.compile_spec_schema import CompileSpec

from tests.lowering_helpers import export, lower, lower_case

SCRIPT = """
import hashlib, sys
from tests.lowering_helpers import lower_case
for name in sys.argv[2:]:
    print(hashlib.sha256(lower_case(name, builder=sys.argv[1])).hexdigest())
"""


@pytest.mark.parametrize("builder", ["reference", "tensorrt_rtx"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "vit"])
def test_twice_in_one_process_is_byte_identical(builder, name):
    program = export(name)
    assert lower(program, builder=builder) == lower(program, builder=builder)


@pytest.mark.parametrize("builder", ["reference", "tensorrt_rtx"])
def test_cuda_0_said_or_not_is_byte_identical(builder):
    silent = lower_case("cnn", builder=builder)
    spec = CompileSpec("target_device", b"cuda:0")
    assert lower_case("cnn", builder=builder, device="cuda:0") == silent
    assert lower_case("cnn", builder=builder, compile_specs=[spec]) == silent


@pytest.mark.parametrize("builder", ["reference", "tensorrt_rtx"])
def test_fresh_processes_agree_with_this_one(builder):
    names = ["mlp", "vit"]
    here = [hashlib.sha256(lower_case(name, builder=builder)).hexdigest() for name in names]
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT, builder, *names],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        assert run.stdout.split() == here
