"""The benchmarks' own arithmetic, and the files that they leave."""

from __future__ import annotations

import json
import lzma
import re
import time
from pathlib import Path

import pytest
import torch

from benchmarks.engines.goals import engine_goals
from benchmarks.engines.models import MODELS, Model
from benchmarks.engines.operators import differing
from benchmarks.engines.page import TITLES, engines_table
from benchmarks.gpu import page as gpu_page
from benchmarks.gpu.models import described, half_model
from benchmarks.gpu.ways import WAYS, Cpu, difference, outputs_of, prepare, times
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
    r"(?<![\w.])\d[\d.,]*(?:\s*(?:\u00b5s|us|ms)\b"
    r"| (?:seconds?|minutes|kernels|times as)\b| [MG]B\b| %)"
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


class Waits:
    """A device on which each wait takes as many seconds as are given, on a clock of its own."""

    def __init__(self, seconds: list[float]) -> None:
        self.now, self.seconds = 0.0, [0.0, *seconds]

    def wait(self) -> None:
        self.now += self.seconds.pop(0)


def test_times_have_a_median_and_the_slowest_of_a_hundred(monkeypatch):
    device = Waits([float(n) for n in range(1, 101)])
    monkeypatch.setattr(time, "perf_counter", lambda: device.now)
    found = times(lambda: None, 100, 1e9, device.wait)
    assert found["done_us_p50"] == pytest.approx(50e6)
    assert found["done_us_p99"] == pytest.approx(99e6)
    assert (found["queued_us_p99"], found["rounds"]) == (0, 100)


def test_no_call_begins_after_the_seconds_of_a_timing(monkeypatch):
    device = Waits([2.0] * 100)
    monkeypatch.setattr(time, "perf_counter", lambda: device.now)
    assert times(lambda: None, 100, 5.0, device.wait)["rounds"] == 3


def test_a_difference_is_the_worst_outputs_share_of_its_norm():
    like = [torch.tensor([3.0, 4.0]), torch.ones(4)]
    assert difference([like[0], like[1] + 0.5], like) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="not finite"):
        difference([like[0] * float("nan"), like[1]], like)
    with pytest.raises(ValueError, match="expected"):
        difference(like[:1], like)


@pytest.mark.parametrize("way", ["eager", "eager_graph", "eager_graph_channels_last"])
def test_a_way_of_pytorch_returns_what_eager_returns(way):
    model = Model(torch.nn.Conv2d(3, 4, 3), (torch.randn(1, 3, 8, 8),))
    with torch.inference_mode():
        (found,) = outputs_of(prepare(WAYS[way], model, Cpu()))
        torch.testing.assert_close(found, model.module(*model.inputs))
    assert found.is_contiguous(memory_format=torch.channels_last) == ("last" in way)


def test_inputs_are_random_and_the_same_each_time():
    first, second = (half_model("bert_masked", batch=3) for _ in range(2))
    assert described(first.inputs) == described(second.inputs)
    tokens, mask = first.inputs
    assert tokens.shape == mask.shape == (3, 128)
    assert (mask.sum(1) == 112).all()
    assert not torch.equal(tokens[0], tokens[1])
    assert tokens.min() >= 3


def way(*times_us, difference=1e-4):
    runs = [{"done_us_p50": t, "done_us_p99": 2 * t} for t in times_us]
    return {"runs": runs, "from_eager_float32": difference}


def test_the_table_of_times_has_the_best_of_pytorch_by_its_name():
    cases = {
        "unet.32": {
            "ways": {
                "ours": way(220.0, 200.0),
                "eager": way(900.0),
                "eager_graph": way(500.0, 600.0),
                "compiled_graph": way(400.0, 450.0, difference=2e-4),
                "autotuned_graph": {"error": "not run: the deadline was over"},
            }
        },
        "swin.1": {"ways": {"ours": {"runs": [{"error": "the probe ended with 1"}]}}},
    }
    unet, swin = gpu_page.times_table(cases).splitlines()[2:]
    best = ["0.400", "compiled graph", "2.00", "1e-04", "2e-04"]
    assert unet == f"| {TITLES['unet']} | 32 | 0.200 | 0.400 | 0.500 | {' | '.join(best)} |"
    assert swin == f"| {TITLES['swin']} | 1 | - | - | - | - | - | - | - | - |"
