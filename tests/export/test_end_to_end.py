"""A .pte with reference engines, in the stock runtime and in executor_runner, against eager."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch

import trt_et.runtime
from tests.support.models import make
from tests.support.programs.stored_programs import assert_agrees, run_runner, run_stock, write_case
from tests.support.python_process import run_forked

CASES = ["mlp", "cnn", "vit", "channels_last", "outputs", "order", "split", "cached"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Every case, lowered for one GPU, and run three times in one process of the stock runtime."""
    folder = tmp_path_factory.mktemp("programs")
    for name in CASES:
        write_case(folder, name)
    run_stock(folder, "simulated:1", *CASES)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_the_stock_runtime_agrees_with_eager(folder, name):
    for outputs in torch.load(folder / f"{name}.outputs"):
        assert_agrees(outputs, name)


@pytest.mark.parametrize("name", CASES)
def test_executor_runner_agrees_with_eager(folder, name):
    assert_agrees(run_runner(folder, name, "simulated:1"), name)


def test_two_partitions_on_two_gpus_exchange_data_rightly(tmp_path):
    write_case(
        tmp_path, "split", excluded_ops=[torch.ops.aten.cumsum], device=lambda part: part.index
    )
    run_stock(tmp_path, "simulated:2", "split")
    for outputs in torch.load(tmp_path / "split.outputs"):
        assert_agrees(outputs, "split")
    assert_agrees(run_runner(tmp_path, "split", "simulated:2"), "split")


def test_a_label_that_disagrees_with_the_engine_is_safe_at_run_time(tmp_path):
    from executorch.exir.backend.compile_spec_schema import CompileSpec

    write_case(
        tmp_path, "mlp", device="cuda:1", compile_specs=[CompileSpec("target_device", b"cuda:0")]
    )
    run_stock(tmp_path, "simulated:2", "mlp")
    for outputs in torch.load(tmp_path / "mlp.outputs"):
        assert_agrees(outputs, "mlp")


def test_an_engine_for_a_gpu_that_is_not_there_says_how_many_there_are(tmp_path):
    write_case(tmp_path, "mlp", device="cuda:3")
    done = subprocess.run(
        [trt_et.runtime.runner_path(), f"--model_path={tmp_path / 'mlp.pte'}"],
        env={**os.environ, "TRT_ET_CUDA": "simulated:2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "cuda:3" in done.stderr
    assert "2" in done.stderr


def test_several_methods_share_a_program(tmp_path):
    from executorch.exir import to_edge_transform_and_lower

    from trt_et import TensorRTPartitioner

    programs = {name: torch.export.export(*make(name)) for name in ("mlp", "order")}
    manager = to_edge_transform_and_lower(
        programs, partitioner=[TensorRTPartitioner(builder="reference")]
    )
    path = tmp_path / "two.pte"
    path.write_bytes(bytes(manager.to_executorch().buffer))
    code = """
import sys, torch, trt_et.runtime
trt_et.runtime.load(cuda="simulated:1")
from executorch.runtime import Runtime
program = Runtime.get().load_program(sys.argv[1])
from tests.support.models import make
for name in ("mlp", "order"):
    torch.save(program.load_method(name).execute(list(make(name)[1])), name)
"""
    done = run_forked(code, path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("mlp", "order"):
        assert_agrees(torch.load(tmp_path / name), name)
