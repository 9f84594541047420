"""What the pages say of the answers of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.engines.page import TITLES
from tests.support.markdown import table

Answers = dict[str, Any]
Run = Answers | None


def times_table(cases: Answers) -> str:
    """Milliseconds of ``cases`` as ``python -m benchmarks.gpu run`` writes them.

    Each time is the better of the runs; ``-`` where there is none.
    """
    head = ("model", "batch", "trt-et", "its p99", "eager PyTorch in a CUDA graph")
    more = ("best of PyTorch", "that is", "best / trt-et", "trt-et's difference", "PyTorch's")
    return "\n".join(table((*head, *more), map(_case_row, cases.items()))) + "\n"


def _case_row(named: tuple[str, Answers]) -> list[str]:
    name, _, batch = named[0].rpartition(".")
    ways = named[1]["ways"]
    best = {way: run for way, facts in ways.items() if (run := _better_run(facts))}
    ours, graph = best.get("ours"), best.get("eager_graph")
    others = {way: run["done_us_p50"] for way, run in best.items() if not way.startswith("ours")}
    cells = [f"{run[key] / 1000:.3f}" if run else "-" for run, key in _ours_and_graph(ours, graph)]
    if ours and others:
        way = min(others, key=lambda each: others[each])
        cells += [f"{others[way] / 1000:.3f}", way.replace("_", " ")]
        cells += [f"{others[way] / ours['done_us_p50']:.2f}"]
        cells += [_difference(ways["ours"]), _difference(ways[way])]
    else:
        cells += ["-"] * 5
    return [TITLES[name], batch, *cells]


def _ours_and_graph(ours: Run, graph: Run) -> list[tuple[Run, str]]:
    return [(ours, "done_us_p50"), (ours, "done_us_p99"), (graph, "done_us_p50")]


def _better_run(facts: Answers) -> Run:
    runs = [run for run in facts.get("runs", ()) if "error" not in run]
    return min(runs, key=lambda run: float(run["done_us_p50"]), default=None)


def _difference(facts: Answers) -> str:
    return f"{facts['from_eager_float32']:.0e}" if "from_eager_float32" in facts else "-"


def static_times(models: Answers) -> str:
    """Milliseconds of models whose sizes are fixed, so that both sides ran the same ones."""
    head = ("model", "trt-et", "trt-et, no graph", "eager PyTorch in a CUDA graph", "ratio")
    rows = []
    for name, ways in _static(models):
        keys = ("ours", "ours_without_graphs", "eager_graph")
        times = [f"{ways[key]['done_us'] / 1000:.3f}" for key in keys]
        rows.append([TITLES[name], *times, f"{_ratio(ways):.2f}"])
    return "\n".join(table(head, rows)) + "\n"


def graph_ratios(models: Answers) -> str:
    """The time of eager PyTorch in a CUDA graph over ours: where that is above 1, and where not."""
    ratios = {name: _ratio(ways) for name, ways in _static(models)}
    faster = [ratio for ratio in ratios.values() if ratio > 1]
    others = ", ".join(f"{TITLES[n]} {r:.1f}" for n, r in ratios.items() if r <= 1)
    return f"{_span(faster)} for {len(faster)} models; {others}"


def _static(models: Answers) -> Iterator[tuple[str, Answers]]:
    return ((name, ways) for name, ways in models.items() if "done_us" in ways.get("ours", {}))


def _ratio(ways: Answers) -> float:
    return float(ways["eager_graph"]["done_us"] / ways["ours"]["done_us"])


def first_loads(answers: Answers) -> str:
    """Seconds of loads whose kernels were not compiled yet."""
    return _span(
        [m["ours"]["load_us"] / 1e6 for m in answers["times_of_dynamic_sizes"]["models"].values()]
    )


def costs_of_a_call(answers: Answers) -> str:
    """Microseconds until a call returns, beside the bare API: a row for each kind of engine."""
    head = ("engine of", "library", "more than the bare API", "bare API", "in a CUDA graph, in all")
    kinds = {"pair": "an addition", "line": "one layer", "deep": "60 layers"}
    rows = []
    for part in ("kernels", "tensorrt_rtx"):
        library = "the tests' own" if part == "kernels" else "TensorRT-RTX 1.6.1"
        for kind, title in kinds.items():
            found = answers[part]["answers"]["costs"][
                f"a_call_is_timed_beside_the_bare_api[{kind}]"
            ]
            plain = found["us_without_graphs"]
            over = found["ratios"]["P13_us_over_bare"]
            queued = found["us_with_graphs"]["delegate_queued"]
            rows.append(
                [title, library, f"{over:.1f}", f"{plain['bare_queued']:.1f}", f"{queued:.1f}"]
            )
    return "\n".join(table(head, rows)) + "\n"


def operators(answers: Answers) -> str:
    """Networks of a few operators: how many were compared, wrong, and built anew."""
    before, after = (
        list(answers[k]["answers"].values()) for k in ("operators_before", "operators")
    )
    wrong = [name for part in before for name in part["wrong"]]
    lost = [name for name in wrong if name.removeprefix("any_batch_").startswith("linear_")]
    count, again = (sum(part["networks"] for part in run) for run in (before, after))
    right = again - sum(len(part["wrong"]) for part in after)
    return (
        f"{count - len(wrong)} of {count} networks equaled eager; {len(lost)} lost the bias of a "
        f"linear layer, and {len(wrong) - len(lost)} have more than one right answer. "
        f"{right} of {again} that were built anew, with another kernel, equaled eager"
    )


def _span(values: list[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}"
