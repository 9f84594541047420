"""Engines that do not fit this machine: each has an error of its own, and other programs run on."""

from __future__ import annotations

import pytest
import torch

from tests.support.fake_tensorrt import FakeBuilder, Line
from tests.support.native_programs import export

REASONS = {
    "version": "engine was built by TensorRT 10.9.0, this machine has 11.7.3",
    "capability": "compute capability 9.0 (NVIDIA H200), but cuda:0 is 0.0",
    "device": "cuda:3 but this machine has 2 GPU(s)",
    "platform": "engine is for the platform linux_aarch64, but this is linux_x86_64",
}


@pytest.mark.reliability("R6")
def test_each_has_its_own_reason_and_other_programs_go_on(tmp_path, stock, fake_tensorrt):
    builders = {
        "fitting": FakeBuilder(target_platform="linux_x86_64"),
        "version": FakeBuilder(version="10.9.0", plan_version=(10, 9, 0, 34)),
        "capability": FakeBuilder(compute_capabilities=("9.0",), gpu_name="NVIDIA H200"),
        "device": FakeBuilder(),
        "platform": FakeBuilder(target_platform="linux_aarch64"),
    }
    x = torch.ones(3, 8)
    jobs = {}
    for name, builder in builders.items():
        device = {"device": "cuda:3"} if name == "device" else {}
        program = export(tmp_path, name, Line(), (x,), builder=builder, host=True, **device)
        jobs[name] = {"program": str(program.path), "inputs": [x]}
    # After each refusal the program that fits, in the same process.
    order = [job for name in REASONS for job in (jobs[name], jobs["fitting"])]
    results = stock(*order, TRT_ET_CUDA="simulated:2", **fake_tensorrt)["results"]
    for (name, reason), result in zip(REASONS.items(), results[::2], strict=True):
        assert "error" in result, name
        assert reason in result["reason"], name
    for result in results[1::2]:
        torch.testing.assert_close(result["outputs"], [torch.full((3, 8), 3.0)])
