"""Writes the numbers of the results into the pages: ``python -m benchmarks.pages``.

A number, or a table, stands between two marks, the first of which says where it comes from:

    <!-- = aot/goals/P1/value .2f -->1.00<!-- end -->
    <!-- = h200/times/models/llama/ours/done_us .3f/1000 -->0.056<!-- end -->
    <!-- = engines_table -->
    ...
    <!-- end -->

That is a file of results, its keys, a format and a divisor; or a function in ``MADE``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.engines.page import beside_the_best, engines_table, summary
from benchmarks.gpu import page as gpu
from tests.support.markdown import table

_ROOT: Final = Path(__file__).parents[1]
_H200: Final = "nvidia-h200-2026-11-27"
_FILES: Final = {
    name: f"benchmarks/results/{file}.json"
    for name, file in {
        "h200": _H200,
        **{n: n for n in ("aot", "engines", "llm", "runtime", "serving")},
    }.items()
} | {"coverage": "docs/coverage.json"}
PAGES: Final = (
    "README.md",
    *(f"docs/{name}.md" for name in ("index", "performance", "gpu", "status", "native", "roadmap")),
)

MADE: Final[Mapping[str, Callable[[], str]]] = {
    "engines_table": lambda: engines_table(_results("engines")["models"]),
    "summary_table": lambda: summary(
        _results("engines")["models"], _results("h200")["times"]["models"]
    ),
    "mobilenet": lambda: beside_the_best("mobilenet_v3", _results("engines")["models"]),
    "serving_table": lambda: _load_runs(_results("serving")),
    "suite": lambda: _suite(_results("coverage")["flows"]),
    "h200_times": lambda: gpu.static_times(_results("h200")["times"]["models"]),
    "h200_ratios": lambda: gpu.graph_ratios(_results("h200")["times"]["models"]),
    "h200_first_loads": lambda: gpu.first_loads(_results("h200")),
    "h200_costs": lambda: gpu.costs_of_a_call(_results("h200")),
    "h200_operators": lambda: gpu.operators(_results("h200")),
}
"""Name of a text -> what makes it from the results."""

_MARKED: Final = re.compile(r"(<!-- = (.+?) -->)(.*?)(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """Return the page with what stands between its marks made again.

    Raises:
        ValueError: A mark names no number and no text, or has no end.
    """
    if page.count("<!-- = ") != len(_MARKED.findall(page)):
        raise ValueError("a mark of the page has no <!-- end -->")
    return _MARKED.sub(lambda found: f"{found[1]}{_made(found[2])}{found[4]}", page)


def _made(source: str) -> str:
    if source in MADE:
        text = MADE[source]()
        return f"\n{text}" if "\n" in text else text
    try:
        path, form = source.split(" ")
        file, *keys = path.split("/")
        form, _, divisor = form.partition("/")
        value: Any = _results(file)
        for key in keys:
            value = value[int(key) if isinstance(value, list) else key]
        return format(value / float(divisor) if divisor else value, form)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{source!r} names no number of the results: {error!r}") from error


def _suite(flows: Mapping[str, Any]) -> str:
    """ExecuTorch's own cases: how many were delegated and equal eager, and XNNPACK's."""
    ours, xnnpack = flows["trt_rtx"], flows["xnnpack"]
    right = "all right" if ours["passed"] == ours["cases"] else f"{ours['passed']} right"
    return (
        f"{ours['delegated']} of {ours['cases']} delegated, {right}; "
        f"XNNPACK: {xnnpack['delegated']} of {xnnpack['cases']}"
    )


def _load_runs(results: Mapping[str, Any]) -> str:
    """The load runs of the example server, and where they were measured."""
    head = [
        "clients",
        "wrong requests",
        "requests/s",
        "p50, ms",
        "p99, ms",
        "memory, MB",
        "growth, MB",
    ]
    rows = [
        [
            f"{run['clients']}",
            f"{run['bad']:.0%}" if run["bad"] else "none",
            f"{run['requests_per_second']:.0f}",
            f"{run['p50_ms']:.1f}",
            f"{run['p99_ms']:.1f}",
            f"{run['rss_bytes'] / 1e6:.0f}",
            f"{run['grown_bytes'] / 1e6:.1f}",
        ]
        for run in results["runs"]
    ]
    facts, seconds = results["machine"], results["seconds"]
    where = f"{facts['cores']} cores of an {facts['cpu']}, {seconds:.0f} seconds each"
    where = f"{where}; load average {results['load_average']:.1f} before the runs."
    return "\n".join([*table(head, rows), "", where]) + "\n"


@cache
def _results(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_ROOT / _FILES[name]).read_text())
    return found


def main() -> None:
    for name in PAGES:
        page = _ROOT / name
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
