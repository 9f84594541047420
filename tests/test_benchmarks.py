"""The benchmarks' own arithmetic, and the files that they leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "benchmarks/results"


@pytest.mark.parametrize(
    ("file", "numbers"),
    [
        ("aot.json", [1, 2, 3, 4, 6, 7, 8, 9, 10, 22, *range(25, 29)]),  # 5 is retired.
        ("runtime.json", [*range(11, 18), 23]),
        ("llm.json", range(18, 22)),
    ],
)
def test_a_result_file_has_every_goal(file, numbers):
    found = json.loads((RESULTS / file).read_text())
    assert list(found["goals"]) == [f"P{number}" for number in numbers]
    assert found["machine"]["cores"] > 0
    for goal in found["goals"].values():
        assert {"value", "goal", "ok", "how"} <= goal.keys()
        assert (goal["value"] is None) == (goal["ok"] is None)
