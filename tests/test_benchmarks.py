"""The benchmarks' own arithmetic, and the files that they leave."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import pytest
import torch

from benchmarks.engines.goals import engine_goals
from benchmarks.engines.models import MODELS
from benchmarks.engines.operators import differing
from benchmarks.engines.page import TITLES, engines_table
from benchmarks.gpu.models import half_model
from benchmarks.pages import PAGES, filled
from benchmarks.serving import RUNS

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


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_numbers_of_the_results(name):
    """``python -m benchmarks.pages`` writes them."""
    page = (ROOT / name).read_text()
    assert filled(page) == page


# Measured, and not a version, a limit of an option or a size of an example.
MEASURED = re.compile(
    r"(?<![\w.])\d[\d.,]*(?:\s*(?:\u00b5s|us|ms)\b| (?:seconds?|minutes|kernels|times as)\b| [MG]B\b| %)"
)
NOT_A_RESULT = {
    "README.md": {"6.3 GB", "1.9 GB", "5 minutes", "24 kernels"},  # pip's downloads; a picture
    "docs/performance.md": {"100 MB"},  # the size of a file
    "docs/gpu.md": {"2 %"},  # a tolerance
}


@pytest.mark.parametrize("name", [name for name in PAGES if name != "docs/roadmap.md"])
def test_a_measured_number_of_a_page_stands_between_marks(name):
    page = (ROOT / name).read_text()
    own = re.sub(r"<!-- = .*?<!-- end -->", "", page, flags=re.DOTALL)
    own = re.sub(r"```.*?```|`[^`\n]*`", "", own, flags=re.DOTALL)
    assert set(MEASURED.findall(own)) == NOT_A_RESULT.get(name, set())


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        ("aot/goals/P999/value .2f", "P999"),
        ("nowhere/goals .2f", "nowhere"),
        ("aot/goals .2f", "aot/goals"),
        ("no_such_table", "no_such_table"),
    ],
)
def test_a_mark_that_names_no_number_is_refused(mark, reason):
    with pytest.raises(ValueError, match=reason):
        filled(f"It takes <!-- = {mark} -->1<!-- end --> s.")


def test_a_mark_without_an_end_is_refused():
    with pytest.raises(ValueError, match="no <!-- end -->"):
        filled("It takes <!-- = aot/goals/P1/value .2f -->1 s.")


def test_a_number_is_divided_and_written_between_its_marks():
    mark = "<!-- = h200/times/models/llama/ours/done_us .2f/1000 -->"
    assert filled(f"{mark}9<!-- end --> ms") == f"{mark}0.06<!-- end --> ms"


def test_the_engines_of_all_models_are_on_the_page():
    models = json.loads((RESULTS / "engines.json").read_text())["models"]
    assert list(models) == list(MODELS) == list(TITLES)


def test_the_load_runs_are_those_of_the_benchmark():
    results = json.loads((RESULTS / "serving.json").read_text())
    assert [(run["clients"], run["bad"]) for run in results["runs"]] == list(RUNS)


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


def test_weights_of_timed_models_compress_and_are_finite_and_unequal():
    weights = [tensor.numpy().tobytes() for tensor in half_model("unet").module.parameters()]
    assert len(set(weights)) == len(weights)
    together = b"".join(weights)
    assert len(lzma.compress(together)) < len(together) / 10
    assert torch.frombuffer(bytearray(together), dtype=torch.float16).isfinite().all()
