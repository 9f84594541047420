"""What a program does with CUDA beside the plugin: streams, green contexts, captures, forks."""

from __future__ import annotations

import pytest

from tests.gpu.test_costs import program

ON_SIMULATED_GPUS = ("own_stream", "capture")


@pytest.mark.parametrize(
    "part", ["own_stream", "green", "capture", "memory_kinds", "own_context", "fork"]
)
@pytest.mark.parametrize("name", ["deep", "pair"])
def test_runs_are_right_beside_what_the_caller_does(part, name, setup, probe, record, skip):
    if setup.is_rehearsal and part not in ON_SIMULATED_GPUS:
        skip("it needs CUDA's driver")
    rounds = 20 if setup.is_rehearsal else 200
    found = probe("caller", part, program(setup, name, "_device"), rounds)
    record(found)
    assert not any(
        value for name, value in found.items() if name not in ("multiprocessors", "of")
    ), found
