"""Turns the results of the models into docs/models.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
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
* *On the CPU*: calls of operators outside of engines, without the arithmetic of sizes. Those of
  `export_llm` check the positions of a call.
* *Equal to eager*: what a program with reference engines was compared with, on a simulated GPU.
* *File / weights*: bytes of the file divided by bytes of the weights, for reference engines and for
  TensorRT-RTX. The weights of such models are so small that most of a file is structure, and with
  TensorRT-RTX kernels, 0.1 to 0.2 MB for each.
"""
_COLUMNS = ("model", "engines", "on the CPU", "equal to eager", "file / weights", "weights")


def write(results: list[dict[str, Any]], known: list[tuple[str, str]]) -> int:
    """Write the page, and return how many results are not right.

    Rows of models that have not run stay, if the page is of the same versions.

    Args:
        results: Of the models that have run.
        known: Kinds and names of all models, in the page's order.
    """
    versions = {name: version(name) for name in _PACKAGES}
    file = DOCS / "models.md"
    file.write_text(page(results, known, versions, file.read_text()))
    return sum("problem" in result[name] for result in results for name in _builders(result))


def page(
    results: list[dict[str, Any]],
    known: list[tuple[str, str]],
    versions: dict[str, str],
    before: str = "",
) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in versions.items())
    rows = dict(_rows_of(before)) if packages in before else {}
    rows |= {(result["kind"], result["name"]): _row(result) for result in results}
    rows = {key: rows[key] for key in known if key in rows}
    right = sum(map(_is_right, rows.values()))
    lines = [_HEAD.format(packages=packages)]
    lines.append(f"{len(rows)} of {len(known)} models have run; {right} of them are right.")
    for kind in dict.fromkeys(kind for kind, _ in rows):
        of_kind = [row for (each, _), row in rows.items() if each == kind]
        lines += ["", f"## {kind}", "", *table(_COLUMNS, of_kind)]
    return "\n".join(lines) + "\n"


def _rows_of(page: str) -> Iterator[tuple[tuple[str, str], list[str]]]:
    kind = ""
    for line in page.splitlines():
        kind = line.removeprefix("## ") if line.startswith("## ") else kind
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(_COLUMNS):
            yield (kind, cells[0]), cells


def _is_right(row: list[str]) -> bool:
    is_equal = re.match(r"\d+ tokens|within ", row[3])
    return is_equal is not None and re.fullmatch(r"[\d.]+, [\d.]+", row[4]) is not None


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
