"""Question 3: what does a call cost beside the bare API, and what memory do methods share?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TIMED = ["line", "deep", "pair"]


def program(setup, name: str, suffix: str = "") -> Path:
    return Path(setup.engines) / f"{name}.{setup.engines_builder}{suffix}.pte"


def tensors(setup, name: str) -> list[str]:
    sizes = json.loads((Path(setup.engines) / f"{name}.tensors.json").read_text())
    return [f"{tensor}={size}" for tensor, size in sizes.items()]


@pytest.mark.parametrize("name", TIMED)
def test_a_call_is_timed_beside_the_bare_api(name, setup, probe, record):
    engine = Path(setup.engines) / f"{name}.engine"
    rounds = 3 if setup.is_rehearsal else 100
    arguments = ["costs", program(setup, name, "_device"), engine, setup.library, rounds]
    arguments += tensors(setup, name)
    graphs, plain = (probe(*arguments, TRT_ET_CUDA_GRAPHS=value) for value in "10")
    ratios = {
        "P13_us_over_bare": plain["delegate_queued"] - plain["bare_queued"],
        "P13_over_bare": plain["delegate_queued"] / plain["bare_queued"],
        "P15_graph_over_plain": graphs["delegate_queued"] / graphs["bare_queued"],
    }
    if "bare_graph_queued" in graphs:  # TensorRT cannot capture every engine.
        ratios["P15_bare_graph_over_plain"] = graphs["bare_graph_queued"] / graphs["bare_queued"]
    record({"us_with_graphs": graphs, "us_without_graphs": plain, "ratios": ratios})
    assert all(value > 0 for value in (*graphs.values(), *plain.values()))


def test_methods_of_one_program_share_its_engine(setup, probe, record):
    used = probe("memory", program(setup, "deep", "_device"), 4)
    record(used)
    assert used["engines"] == 1
    assert used["bytes_left_by_loads"] <= 0
