"""TensorRT-RTX engines on a real GPU, against eager. Nothing of this has run yet."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import torch

from tests.support.models import make
from tests.support.programs.stored_programs import as_tuple, run_runner, run_stock, write_case

NAMES = ["mlp", "cnn", "vit", "channels_last", "outputs", "order", "cached"]


def has_gpu() -> bool:
    # PyTorch is not asked: it may have been built without CUDA.
    tool = shutil.which("nvidia-smi")
    return tool is not None and subprocess.run([tool, "-L"], capture_output=True).returncode == 0


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="no NVIDIA GPU")]


def agrees(found, name: str) -> None:
    model, inputs = make(name)
    for have, want in zip(found, as_tuple(model(*inputs)), strict=True):
        assert have.dtype == want.dtype
        # TensorRT may use TF32: 10 bits of mantissa.
        torch.testing.assert_close(have, want, atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_built_without_a_gpu_runs_in_the_stock_runtime(name, tmp_path):
    write_case(tmp_path, name, builder="tensorrt_rtx")
    run_stock(tmp_path, "real", name)
    for outputs in torch.load(tmp_path / f"{name}.outputs"):
        agrees(outputs, name)


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_built_without_a_gpu_runs_in_executor_runner(name, tmp_path):
    write_case(tmp_path, name, builder="tensorrt_rtx")
    agrees(run_runner(tmp_path, name, "real"), name)
