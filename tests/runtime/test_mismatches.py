"""Engines that do not fit this machine: each has an error of its own, and other programs run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.fake_tensorrt import FakeBuilder, Line
from tests.support.native_programs import export

REASONS = {
    "version": "unknown interface (known: 10.0",
    "capability": "compute capability 9.0 (NVIDIA H200), but cuda:0 is 0.0",
    "device": "cuda:3 but this machine has 2 GPU(s)",
    "platform": "engine is for the platform linux_aarch64, but this is linux_x86_64",
}


@pytest.fixture(scope="module")
def results(
    tmp_path_factory: pytest.TempPathFactory,
    stock: Callable[..., dict[str, Any]],
    fake_tensorrt: dict[str, str],
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("mismatches")
    builders = {
        "fitting": FakeBuilder(target_platform="linux_x86_64"),
        "version": FakeBuilder(version="10.9.0"),
        "capability": FakeBuilder(compute_capabilities=("9.0",), gpu_name="NVIDIA H200"),
        "device": FakeBuilder(),
        "platform": FakeBuilder(target_platform="linux_aarch64"),
    }
    x = torch.ones(3, 8)
    jobs = {}
    for name, builder in builders.items():
        device = {"device": "cuda:3"} if name == "device" else {}
        program = export(folder, name, Line(), (x,), builder=builder, host=True, **device)
        jobs[name] = {"program": str(program.path), "inputs": [x]}
    # After each refusal the program that fits, in the same process.
    order = ["fitting"]
    for name in REASONS:
        order += [name, "fitting"]
    facts = stock(*(jobs[name] for name in order), TRT_ET_CUDA="simulated:2", **fake_tensorrt)
    return {
        "refused": dict(zip(REASONS, facts["results"][1::2], strict=True)),
        "fitting": facts["results"][::2],
    }


@pytest.mark.reliability("R6")
def test_each_has_its_own_reason(results: dict[str, Any]) -> None:
    for name, reason in REASONS.items():
        assert reason in results["refused"][name].get("reason", ""), name
        assert "error" in results["refused"][name]


@pytest.mark.reliability("R6")
def test_other_programs_go_on(results: dict[str, Any]) -> None:
    for result in results["fitting"]:
        torch.testing.assert_close(result["outputs"], [torch.full((3, 8), 3.0)])
