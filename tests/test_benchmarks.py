"""The benchmarks' own arithmetic, and the files that they leave."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
import torch

from benchmarks.engines.goals import engine_goals
from benchmarks.engines.models import MODELS
from benchmarks.engines.operators import differing
from benchmarks.engines.page import TITLES, engines_table, with_table
from benchmarks.gpu.models import half_model
from benchmarks.gpu.page import times_table
from benchmarks.serving import RUNS, serving_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"


@pytest.mark.parametrize(
    ("file", "numbers"),
    [
        ("aot.json", [1, 2, 3, 4, 6, 7, 8, 9, 10, 22, *range(25, 29)]),  # 5 is retired.
        ("runtime.json", [*range(11, 18), 23]),
        ("llm.json", range(18, 22)),
        ("engines.json", range(29, 34)),
    ],
)
def test_a_result_file_has_every_goal(file, numbers):
    found = json.loads((RESULTS / file).read_text())
    assert list(found["goals"]) == [f"P{number}" for number in numbers]
    assert found["machine"]["cores"] > 0
    for goal in found["goals"].values():
        assert {"value", "goal", "ok", "how"} <= goal.keys()
        assert (goal["value"] is None) == (goal["ok"] is None)


def facts(kernels, activations=100, constants=100, memory=50):
    return {
        "engines": 1,
        "kernels": kernels,
        "activation_bytes": activations,
        "constant_bytes": constants,
        "activation_memory_bytes": memory,
    }


def ways(ours, parser, converted, precision=None):
    return {
        "ours": ours,
        "onnx_parser": parser,
        "torch_tensorrt": converted,
        "ours_precision": precision or ours,
    }


DYNAMIC = facts(12, None, 100, None)
FAILED = {"failed": "UnsupportedOperator: gather"}
ENGINES = {
    "unet": ways(facts(8, 300, 100), facts(10), facts(16, 0), facts(9, 150)),
    "bert_dynamic": ways(DYNAMIC, facts(10, None, 100, None), FAILED),
}


def test_ours_is_divided_by_the_better_of_the_other_ways():
    goals = dict(engine_goals(ENGINES))
    kernels, moved = goals["P29"], goals["P30"]
    assert kernels["details"]["ratios"] == {"unet": 0.8, "bert_dynamic": 1.2}
    assert (kernels["value"], kernels["ok"]) == (1.2, False)
    assert kernels["details"]["geometric_mean"] == pytest.approx(0.96**0.5, abs=1e-4)
    # Unknown sizes and ways that failed count nowhere.
    assert moved["details"]["ratios"] == {"unet": 4.0}
    assert goals["P31"]["value"] == 1.0
    # With precision=, against the parser's float16 model alone.
    assert goals["P32"]["value"] == 1.25


def test_kernels_of_an_engine_with_a_loop_are_unknown():
    looped = facts(3) | {"has_loops": True}
    goals = dict(engine_goals({"lstm_gru": ways(facts(12), looped, facts(10))}))
    assert goals["P29"]["value"] == 1.2
    assert goals["P31"]["value"] == 1.0


@pytest.mark.parametrize(("kernels", "ok"), [((8, 10), True), ((10, 10), False), ((7, 11), False)])
def test_the_worst_model_and_the_mean_must_both_reach_the_goal(kernels, ok):
    found = {
        name: ways(facts(count), facts(10), facts(10))
        for name, count in zip(("unet", "swin"), kernels, strict=True)
    }
    assert dict(engine_goals(found))["P29"]["ok"] is ok


def test_the_table_of_engines_marks_where_ours_needs_less():
    rows = engines_table(ENGINES).splitlines()[2:]
    assert rows[0].split(" | ")[1:4] == ["**8**", "10", "0.0"]
    assert rows[1] == f"| {TITLES['bert_dynamic']} | 12 | 10 | - | - | - | - |"


def test_the_page_without_a_place_for_the_table_is_refused():
    with pytest.raises(ValueError, match="0 places"):
        with_table("# Performance\n", ENGINES)


def test_the_page_has_the_table_of_the_results():
    """``python -m benchmarks.plots`` writes it."""
    models = json.loads((RESULTS / "engines.json").read_text())["models"]
    assert list(models) == list(MODELS) == list(TITLES)
    assert engines_table(models) in (ROOT / "docs/performance.md").read_text()


def test_the_page_has_the_table_of_the_load_runs():
    results = json.loads((RESULTS / "serving.json").read_text())
    assert [(run["clients"], run["bad"]) for run in results["runs"]] == list(RUNS)
    assert serving_text(results) in (ROOT / "docs/performance.md").read_text()


def test_networks_whose_kernels_and_bytes_are_nearly_equal_are_left_out():
    dtypes = {
        "float16": {"ours": facts(3, 1000, 0), "onnx_parser": facts(3, 1040, 0)},
        "float32": {"ours": facts(3, 9000, 0), "onnx_parser": facts(3, 8000, 0)},
    }
    assert list(differing("mish", dtypes)) == [["mish", "float32", "3", "3", "9", "8"]]
    failed = {"float16": {"ours": facts(3), "onnx_parser": FAILED}}
    assert list(differing("gather", failed)) == [
        ["gather", "float16", "onnx_parser: UnsupportedOperator: gather"]
    ]


def test_times_are_divided_by_those_of_ours_and_errors_are_shown(tmp_path):
    output = tmp_path / "times.json"
    times = {
        "ours": {"done_us": 200.0},
        "eager": {"done_us": 1000.0},
        "eager_graph": {"error": "RuntimeError: capture"},
        "compile_graph": {"done_us": 500.0},
        "compile_default": {"error": "not run: the deadline was over"},
    }
    output.write_text(json.dumps({"models": {"unet": times}}))
    (tmp_path / "unet.json").write_text(json.dumps(facts(8, 1_500_000, 1_000_000)))
    row = times_table(output, tmp_path).splitlines()[2]
    cells = ["8", "2.5", "0.200", "1.000", "failed", "0.500", "-", "2.50"]
    assert row == f"| {TITLES['unet']} | {' | '.join(cells)} |"


def test_weights_of_timed_models_compress_and_are_finite_and_unequal():
    weights = [tensor.numpy().tobytes() for tensor in half_model("unet").module.parameters()]
    assert len(set(weights)) == len(weights)
    together = b"".join(weights)
    assert len(lzma.compress(together)) < len(together) / 10
    assert torch.frombuffer(bytearray(together), dtype=torch.float16).isfinite().all()
