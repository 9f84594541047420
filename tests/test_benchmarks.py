"""The benchmarks' own arithmetic, and the files that they leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.aot.curves import fit
from benchmarks.aot.processes import median

RESULTS = Path(__file__).parents[1] / "benchmarks/results"


def test_a_line_is_fitted_and_its_quality_said():
    assert fit([1, 2, 3, 5], [5, 8, 11, 17]) == {"slope": 3, "intercept": 2, "r_squared": 1}
    assert fit([1, 2, 3, 4, 5], [1, 4, 9, 16, 25])["r_squared"] == pytest.approx(0.9626, abs=1e-4)
    assert fit([1, 2, 3], [0, 1, 0])["r_squared"] == 0


def test_a_median_is_taken_of_each_number():
    runs = [{"seconds": s, "tensorrt": False} for s in (3.0, 1.0, 2.0)]
    assert median(runs) == {"seconds": 2.0, "tensorrt": False}


@pytest.mark.parametrize(
    ("file", "numbers"),
    [
        ("aot.json", [1, 2, 3, 4, 6, 7, 8, 9, 10, 22]),  # 5 is retired.
        ("runtime.json", range(11, 18)),
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
