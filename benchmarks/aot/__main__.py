"""``python -m benchmarks.aot [--quick]``: a table, and ``benchmarks/results/aot.json``."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.aot import curves
from benchmarks.aot.goals import WHY_MISSED, Plan, measure
from benchmarks.aot.processes import ROOT
from benchmarks.figures import Figure, machine

QUICK = Plan(millions=12, engine_mebibytes=128, partitions=(4, 12), rounds=1)
ONLY = "measure these goals and curves; the file keeps its others"
STATES = {True: "ok", False: "[bold]MISSED[/bold]", None: "not measured"}


def table(goals: dict[str, Figure]) -> Table:
    """What was found, one line a goal."""
    shown = Table("", "value", "goal", "", "how")
    for name, found in goals.items():
        value = "" if found["value"] is None else f"{found['value']:.3f}"
        how = found["how"]
        shown.add_row(name, value, str(found["goal"]), STATES[found["ok"]], how[:100] + "...")
    return shown


def _measure(plan: Plan, only: list[str]) -> Iterator[tuple[str, Figure]]:
    for goal, found in measure(plan, only):
        if found["ok"] is False and goal in WHY_MISSED:
            found["why"] = WHY_MISSED[goal]
        # What else ran meanwhile: with more than there are cores, times say little.
        yield goal, found | {"load_average": round(os.getloadavg()[0], 1)}


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small models, one round, no curves")
    parser.add_argument("--only", nargs="+", default=[], metavar="GOAL", help=ONLY)
    parser.add_argument("--rounds", type=int, help="runs of each task that is timed")
    parser.add_argument("--largest", type=float, default=300, help="millions of parameters")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    output: Path = arguments.output or ROOT / (
        "build/aot-quick.json" if arguments.quick else "benchmarks/results/aot.json"
    )
    result: dict[str, Any] = {
        "machine": machine(),
        "command": "make bench-aot" + (" QUICK=1" if arguments.quick else ""),
        "goals": {},
    }
    if arguments.only and output.exists():
        result |= json.loads(output.read_text())
    console = Console()
    plan = QUICK if arguments.quick else Plan()
    plan = replace(plan, rounds=arguments.rounds or plan.rounds)
    for goal, found in _measure(plan, arguments.only):
        result["goals"][goal] = found
        console.print(f"{goal}: {found['value']} (at most {found['goal']})")
    result["goals"] = dict(sorted(result["goals"].items(), key=lambda item: int(item[0][1:])))
    if not arguments.quick:
        sizes = [size for size in (10, 30, 100, 300, 1000) if size <= arguments.largest]
        kinds: dict[str, Callable[[], Any]] = {
            "parameters": lambda: curves.by_parameters(sizes),
            "partitions": lambda: curves.by_partitions((1, 16, 64, 128, 200)),
        }
        for name, curve in kinds.items():
            if not arguments.only or name in arguments.only:
                result.setdefault("curves", {})[name] = curve()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=2) + "\n")
    console.print(table(result["goals"]))
    for goal, found in result["goals"].items():
        if "why" in found:
            console.print(f"{goal}: {found['why']}")
    console.print(f"written to {output}")


if __name__ == "__main__":
    main()
