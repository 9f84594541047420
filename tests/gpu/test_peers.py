"""Question 5: what do eager and torch.compile take for the same models?"""

from __future__ import annotations

import statistics
import time

import pytest

from tests.gpu.test_programs import MODELS


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_timed(name, compiled, setup, record):
    import torch

    from tests.support.models import make

    if setup.is_rehearsal and compiled:
        pytest.skip("torch.compile is not rehearsed")
    if not setup.is_rehearsal and not torch.cuda.is_available():
        pytest.skip("this PyTorch finds no GPU")
    device = "cpu" if setup.is_rehearsal else "cuda"
    model, inputs = make(name)
    model = model.to(device)
    arguments = [tensor.to(device) for tensor in inputs]
    call = torch.compile(model) if compiled else model
    times = []
    with torch.no_grad():
        for _ in range(20 if setup.is_rehearsal else 500):
            started = time.perf_counter()
            call(*arguments)
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - started)
    record({"p50_us": statistics.median(times[5:]) * 1e6})
