"""Turns the results of the models into docs/models.md."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.support.markdown import table

DOCS = Path(__file__).parents[3] / "docs"
_PACKAGES = ("executorch", "torch", "transformers", "torch-tensorrt-rtx", "tensorrt-rtx")
_HEAD = """# Models

Models that trt-et is tried with: small, with random weights. `make models` makes this table.
{packages}.

* *Engines*: how many the program has, in all of its methods.
* *On the CPU*: calls of operators outside of engines, without the arithmetic of sizes. The four of
  `export_llm` check that the positions of a call are in the cache.
* *Equal to eager*: what a program with reference engines was compared with, on a simulated GPU.
* *File / weights*: bytes of the file divided by bytes of the weights, for reference engines and for
  TensorRT-RTX. The weights of such models are so small that most of a file is structure, and with
  TensorRT-RTX kernels, 0.1 to 0.2 MB for each.
"""
_COLUMNS = ("model", "engines", "on the CPU", "equal to eager", "file / weights", "weights")


def write(results: list[dict[str, Any]], known: int) -> int:
    """Write the page of models that have run, and return how many results are not right."""
    versions = {name: version(name) for name in _PACKAGES}
    (DOCS / "models.md").write_text(page(results, known, versions))
    return sum("problem" in result[name] for result in results for name in _builders(result))


def page(results: list[dict[str, Any]], known: int, versions: dict[str, str]) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in versions.items())
    lines = [_HEAD.format(packages=packages)]
    wrong = [r for r in results if any("problem" in r[name] for name in _builders(r))]
    right = len(results) - len(wrong)
    lines.append(f"{len(results)} of {known} models have run; {right} of them are right.")
    for kind in dict.fromkeys(result["kind"] for result in results):
        rows = [_row(result) for result in results if result["kind"] == kind]
        lines += ["", f"## {kind}", "", *table(_COLUMNS, rows)]
    return "\n".join(lines) + "\n"


def _builders(result: dict[str, Any]) -> list[str]:
    return [name for name in result if name not in ("kind", "name")]


def _row(result: dict[str, Any]) -> list[str]:
    run, built = result.get("reference", {}), result.get("tensorrt_rtx", {})
    weights = (run or built).get("weights")
    return [
        result["name"],
        str(sum(run["engines"].values())) if "engines" in run else "-",
        _on_cpu(run["cpu"]) if "cpu" in run else "-",
        run.get("problem") or run.get("equal", "not run"),
        f"{_ratio(run)}, {built.get('problem') or _ratio(built)}",
        f"{weights / 1024:.0f} KiB" if weights else "-",
    ]


def _ratio(result: dict[str, Any]) -> str:
    return f"{result['file'] / max(1, result['weights']):.2f}" if "file" in result else "not run"


def _on_cpu(calls: dict[str, dict[str, int]]) -> str:
    counts: Counter[str] = Counter()
    for operators in calls.values():
        for name, count in operators.items():
            short = name.removeprefix("aten::").split(".")[0]
            if not name.startswith("executorch_prim::") and short != "sym_size":
                counts[short] += count
    return f"{counts.total()}: {', '.join(sorted(counts))}" if counts else "0"
